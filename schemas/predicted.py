"""Predictions of a plan: seconds with their spread, what they are made of, memory, and the routing they assume."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Bytes, Count, Derived, Frozen, Name, Total, empty, mistake, zero


class Interval(Frozen):
    """A prediction: 5th percentile, median, 95th percentile."""

    low: Derived
    mid: Derived
    high: Derived

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.mid <= self.high:
            numbers = f"{self.low}, {self.mid}, {self.high}"
            raise mistake(f"low, mid and high are out of order: {numbers}", "write them with low <= mid <= high")
        return self


class Term(Frozen):
    """One summand of a prediction: all tasks of one operation kind on one resource."""

    op: Name
    resource: Name
    tasks: Count
    seconds: Interval
    bytes: Total
    flops: Derived
    bound: Literal["memory", "compute", "launch", "link", "overhead"]
    source: Name = Field(description="measured, fitted, paper, datasheet, class, assumed")


class PhasePrediction(Frozen):
    """Seconds of one pass (prefill: the prompt; decode: one step at `context`) and what they are made of."""

    context: Count
    seconds: Interval
    terms: tuple[Term, ...]
    bottleneck: Name
    lower_bound: Derived = Field(description="seconds no placement on this hardware can beat")
    gap: Derived = Field(description="seconds.mid / lower_bound - 1")


class Seconds(Frozen):
    """A prediction of a duration."""

    seconds: Interval


class MemoryUse(Frozen):
    """Bytes a plan needs in one memory against what it may use.

    `pinned`: what page-locked caches take beyond their sizes (PARK-53, 75); `drafter`: what drafts tokens, and
    snapshots of states behind drafts."""

    memory: Name
    weights: Total
    kv: Total
    buffers: Total
    available: Bytes
    pinned: Total = 0
    drafter: Annotated[Total, Field(exclude_if=zero)] = 0

    @property
    def used(self) -> int:
        """Return all bytes together."""
        return self.weights + self.kv + self.buffers + self.pinned + self.drafter


CaseName = Literal["uniform", "least", "most", "cold"]
"""Another routing than a prediction assumes: every expert alike, the ends of the spread of recorded traces by the
seconds that they lead to, and slots for experts that begin empty."""


class RoutingCase(Frozen):
    """Seconds of the prompt and of a decode step under another routing."""

    name: CaseName
    prefill: Derived
    decode: Derived


class AssumedRouting(Frozen):
    """The routing that a prediction assumes, and how its seconds move in other cases."""

    assumed: Literal["uniform", "popularity", "curves"]
    cases: Annotated[tuple[RoutingCase, ...], Field(max_length=4, exclude_if=empty)] = ()


class Predicted(Frozen):
    """What the cost model expects of the plan; `routing`: of models with experts."""

    prefill: PhasePrediction
    decode: PhasePrediction
    ttft: Seconds
    request: Seconds | None = Field(
        default=None, description="the whole workload, prompts and decode steps; older plans do not say it"
    )
    tokens_per_second: Interval = Field(description="decode tokens per second, all sequences together")
    memory: tuple[MemoryUse, ...]
    routing: AssumedRouting | None = None
