"""Questions to the planner service that are simulated: the steps of a plan, or requests that a plan serves."""

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, NonNegative, mistake, version
from helmsman.schemas.plan import Plan
from helmsman.schemas.planner_question import PlannerQuestion
from helmsman.schemas.serving_question import MAX_USERS, Rate, ServingSetting

MOST_ROWS = 20_000
"""Requests that a question may list; more are described by a `synthetic:` line."""
MOST_STEPS = 1000
MOST_SEEDS = 1000

Described = Annotated[str, Field(max_length=1000, pattern=r"^synthetic:[^\x00-\x1f]*$")]
"""`synthetic:n=2000,input=1000,output=200,rate=2`; a file of the server it is not."""


class ListedRequest(Frozen):
    """A request: `arrival` in seconds of the run's own clock, tokens of its prompt and its answer."""

    arrival: Annotated[NonNegative, Field(le=1e9)]
    prompt_tokens: Annotated[Count, Field(le=10**7)]
    output_tokens: Annotated[Count, Field(le=10**7)]


def _requests_form(value: object) -> str | None:
    if isinstance(value, str):
        return "(line)"
    return "(rows)" if isinstance(value, list | tuple) else None


RequestsChoice = Annotated[
    Annotated[Described, Tag("(line)")]
    | Annotated[tuple[ListedRequest, ...], Field(min_length=1, max_length=MOST_ROWS), Tag("(rows)")],
    Discriminator(_requests_form, "choice_type", "neither a synthetic: line nor a list of requests"),
]
"""Requests by a line that describes them, or one by one."""


class SimulatedServing(ServingSetting):
    """Describes a served load, with the fields of a `helm.serving-question/1`; its `requests` are described or
    listed."""

    requests: RequestsChoice
    rate: Rate | None = None
    arrivals: Name | None = None
    limit: Annotated[Count, Field(le=10**9)] | None = None
    users: Annotated[Count, Field(le=MAX_USERS)] | None = None
    think: Name | None = None
    seed: Annotated[Index, Field(lt=2**31)] = 0
    slo: Name | None = None


class SimulationQuestion(Document):
    """A `plan`, or the `question` that it answers, to be replayed, or to serve requests (`serving`).

    `timeline`: also as Trace Events, which https://ui.perfetto.dev shows, of `steps` decode steps; `capacity`: the
    highest rate within the SLO; `users`: the most users; `replicas`: the fewest replicas; `seeds`: draws of arrivals
    for these three, by default as many as settle them."""

    schema_id: Literal["helm.simulation-question/1"] = version("helm.simulation-question/1")
    question: PlannerQuestion | None = None
    plan: Plan | None = None
    timeline: bool = False
    steps: Annotated[Index, Field(le=MOST_STEPS)] = 8
    serving: SimulatedServing | None = None
    capacity: bool = False
    users: bool = False
    replicas: bool = False
    seeds: Annotated[Count, Field(le=MOST_SEEDS)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.question is None) == (self.plan is None):
            raise mistake("a question or a plan is simulated", "give one of the two", "question")
        if self.serving is None and (self.capacity or self.users or self.replicas):
            raise mistake("nobody is served", "say which requests come", "serving")
        return self
