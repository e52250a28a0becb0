"""ServedComparison: what requests waited for when a plan was served, beside what was simulated (docs/serving.md)."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Document, Frozen, Name, NonNegative, Positive, version
from helmsman.schemas.served import ServedInfo
from helmsman.schemas.serving import Counts


class Compared(Frozen):
    """One figure of both. `error`: (measured - simulated) / simulated, signed; left out where one of them is missing.

    `judged`: whether the verdict depends on it."""

    what: Name
    simulated: NonNegative | None = None
    measured: NonNegative | None = None
    error: float | None = None
    judged: bool


class ServedComparison(Document):
    """Both runs, their figures and the verdict: every judged error is at most `tolerance`."""

    schema_id: Literal["helm.served-comparison/1"] = version("helm.served-comparison/1")
    simulated: ServedInfo
    measured: ServedInfo
    simulated_requests: Counts
    measured_requests: Counts
    figures: Annotated[tuple[Compared, ...], Field(min_length=1, max_length=100)]
    tolerance: Positive
    passed: bool
