"""The answer to "what can I run": models, formats and contexts on one machine, and which of them to take."""

from typing import Literal

from pydantic import Field

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, NonNegative, Positive, Total, Words, version
from helmsman.schemas.formats import KvFormat
from helmsman.schemas.plan_question import Place
from helmsman.schemas.study_row import Status

PurposeName = Literal["chat", "code", "batch"]
"""What a model is to be used for."""


class PublishedLoss(Frozen):
    """The loss of a format as published for `model` on `data`: the mean Kullback-Leibler divergence of next tokens, in
    nats, with its standard error, and by how much perplexity rises. `imatrix`: whether the file was made with an
    importance matrix."""

    format: Name
    kl_divergence: NonNegative
    error: NonNegative
    perplexity_rise: float
    imatrix: bool
    model: Name
    data: Name
    source: Name


class FitRow(Frozen):
    """A model in a format at a context: whether it fits, how fast it is, and what it loses.

    Times are in seconds, rates in tokens a second of all sequences; `_low` and `_high`: the 5th and 95th percentile."""

    model: Place
    parameters: Total
    format: Name
    bits: Positive = Field(description="of a parameter, with scales and what is kept in other formats")
    weight_bytes: Total
    context: Count
    prompt_tokens: Count
    output_tokens: Count
    status: Status
    strategy: Name | None = Field(default=None, description="whose plan it is")
    settings: Name | None = Field(default=None, description="label of the plan: the strategy and its main numbers")
    decode_rate: float | None = None
    decode_rate_low: float | None = None
    decode_rate_high: float | None = None
    ttft_s: float | None = None
    ttft_low_s: float | None = None
    ttft_high_s: float | None = None
    request_s: float | None = None
    host_bytes: int | None = Field(default=None, description="used of the host's memories")
    accelerator_bytes: int | None = Field(default=None, description="used of all accelerators' memories")
    meets_floor: bool | None = Field(default=None, description="whether the median of tokens a second does")
    loss: float | None = Field(default=None, description="nats; 0: the format that the model was released in")
    loss_of: Words | None = Field(default=None, description="whose loss that is")
    missing: Words | None = Field(default=None, description="what does not fit, and what would help")
    note: Words | None = Field(default=None, description="what to know of the model before it is run")


class FitReport(Document):
    """Models, formats and contexts on a machine. `best`: numbers of the rows to take, one for every model and context
    of which a row was answered, what fits and reaches the floor first, the largest model first.

    `floor`: tokens a second that a row is to reach, for the reason that `floor_source` gives; `losses`: the published
    figures that rows rest on; `engine`: whose speed is predicted, where one was named."""

    schema_id: Literal["helm.fit-report/1"] = version("helm.fit-report/1")
    machine: Place
    purpose: PurposeName
    floor: NonNegative
    floor_source: Words
    batch: Count
    kv_format: KvFormat
    engine: Name | None = None
    best: tuple[Index, ...]
    losses: tuple[PublishedLoss, ...]
    rows: tuple[FitRow, ...]
