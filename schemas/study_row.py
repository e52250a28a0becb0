"""The answer to one question of a study, as a row of its table."""

from typing import Literal

from pydantic import Field

from helmsman.schemas.base import Frozen, Name, Sha256, Words
from helmsman.schemas.plan_question import Place

Status = Literal["fits", "does-not-fit", "does-not-apply", "failed"]
"""`does-not-fit`: more memory would do, `does-not-apply`: the strategy, the format or the change is none for this model
or machine, `failed`: an internal error."""


class StudyRow(Frozen):
    """A question, and what was predicted or simulated for it; what was not asked, or has no answer, is null.

    Times are in seconds, rates in tokens or requests a second; `_low` and `_high`: the 5th and 95th percentile of a
    prediction, or the ends of the 95 % confidence interval of what was simulated."""

    key: Sha256 = Field(description="digest of the question, of the model's and the machine's documents")
    model: Place
    machine: Place
    change: Words
    engine: Name | None = Field(default=None, description="whose speed is predicted, as asked")
    strategy: Name
    options: Words | None = Field(default=None, description="of the strategy, where the study has any")
    format: Name | None = Field(default=None, description="of the weights, as asked")
    kv_format: Name
    objective: Name
    prompt_tokens: int
    output_tokens: int
    context: int
    batch: int
    policy: Name | None = Field(default=None, description="of serving")
    slo: Name | None = None
    requests: Place | None = Field(default=None, description="that are served")
    target_rate: float | None = Field(default=None, description="requests a second, for which replicas are asked")
    target_users: int | None = Field(default=None, description="users, for whom replicas are asked")
    think: Name | None = Field(default=None, description="time that a user thinks between requests")
    prices: Name = Field(description="name of the prices")
    status: Status
    missing: Words | None = Field(default=None, description="what does not fit or apply, and what would help")
    plan: Name | None = Field(default=None, description="label of the plan")
    planned_by: Name | None = Field(default=None, description="strategy whose plan `best` chose")
    request_s: float | None = None
    request_low_s: float | None = None
    request_high_s: float | None = None
    ttft_s: float | None = None
    ttft_low_s: float | None = None
    ttft_high_s: float | None = None
    step_s: float | None = None
    step_low_s: float | None = None
    step_high_s: float | None = None
    decode_rate: float | None = Field(default=None, description="tokens a second of decode steps, all sequences")
    decode_rate_low: float | None = None
    decode_rate_high: float | None = None
    experts: Words | None = Field(default=None, description="where routed experts are while answering, by blocks")
    gap: float | None = Field(default=None, description="share above the proved lower bound, where there is one")
    host_bytes: int | None = Field(default=None, description="used of the host's memories")
    accelerator_bytes: int | None = Field(default=None, description="used of all accelerators' memories")
    accelerator_free_bytes: int | None = Field(default=None, description="of what a plan may use there")
    price: float | None = Field(default=None, description="of the machine with its change")
    cost: float | None = Field(default=None, description="of a million output tokens: price and energy")
    keeps_slo: bool | None = Field(default=None, description="of one request, or at some rate where serving is asked")
    rate: float | None = Field(default=None, description="most requests a second that keep the SLO")
    rate_low: float | None = None
    rate_high: float | None = None
    served_tokens: float | None = Field(default=None, description="output tokens a second at that rate")
    rate_settled: bool | None = Field(default=None, description="whether runs were long and many enough for it")
    users: int | None = Field(default=None, description="most users who think between requests and keep the SLO")
    users_low: float | None = None
    users_high: float | None = None
    users_settled: bool | None = None
    replicas: int | None = Field(
        default=None, description="fewest that keep the SLO at the target rate, or for the target users"
    )
    replicas_settled: bool | None = None
