"""ServedComparison: what requests waited for when a plan was served, beside what was simulated (docs/serving.md)."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Document, Frozen, Index, Name, NonNegative, Positive, version
from helmsman.schemas.served_table import ServedInfo
from helmsman.schemas.serving import Counts

Verdict = Literal["passed", "missed", "disturbed"]
"""Of a measurement; one that others disturbed shows neither of the others."""


class Compared(Frozen):
    """One figure of both. `error`: (measured - simulated) / simulated, signed; left out where one of them is missing.

    `judged`: whether the verdict depends on it; `noise`: the standard error of `error`, by means of batches of requests
    in order of arrival; left out where a run is too short."""

    what: Name
    simulated: NonNegative | None = None
    measured: NonNegative | None = None
    error: float | None = None
    noise: NonNegative | None = None
    judged: bool


class ServedComparison(Document):
    """Both runs, their figures and the verdict: `passed` where every judged error is at most `tolerance`, `missed`
    where one is not or a request was `lost` (it failed or was refused, and finished in simulation: latencies are of
    finished ones, so nothing else shows it), `disturbed` where others took so much of the processors
    (`others_cpu_share`) that nobody knows.

    `passes`: by part of the server's passes (`pass`: all of it, `device`: the work of the one that has the weights,
    `host`: attention to caches beside it), how many times as long as the plan's record prices them they took; empty for
    servers that do not tell.

    `passed` says the first again."""

    schema_id: Literal["helm.served-comparison/1"] = version("helm.served-comparison/1")
    simulated: ServedInfo
    measured: ServedInfo
    simulated_requests: Counts
    measured_requests: Counts
    lost: Index = 0
    figures: Annotated[tuple[Compared, ...], Field(min_length=1, max_length=100)]
    tolerance: Positive
    others_cpu_share: NonNegative | None = None
    thread_wait_share: NonNegative | None = None
    passes: dict[Name, NonNegative] = Field(default_factory=dict)
    verdict: Verdict
    passed: bool
