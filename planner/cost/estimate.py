"""Seconds of a task as an interval, the rates that they are by, and how bounds combine."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Bound = Literal["memory", "compute", "launch", "link", "overhead"]


class Estimate(NamedTuple):
    """Seconds: 5th percentile, median, 95th percentile; what bounds them; the kind of their source. A tuple, as a price
    is made of half a dozen.

    `memory`: the part of `mid` that is bytes over a memory's or link's bandwidth, and scales with it; `compute`: the
    part that is FLOPs over a device's rate; `beside`: the link whose traffic was there when it was measured, so that it
    does not slow this again."""

    low: float
    mid: float
    high: float
    bound: Bound
    source: str
    memory: float = 0.0
    compute: float = 0.0
    beside: str | None = None

    def plus(self, other: "Estimate | None") -> "Estimate":
        """The sum of two durations that err together; the larger one names bound and source."""
        if other is None:
            return self
        main = self if self.mid >= other.mid else other
        low, mid, high = self.low + other.low, self.mid + other.mid, self.high + other.high
        memory, compute = self.memory + other.memory, self.compute + other.compute
        return Estimate(low, mid, high, main.bound, main.source, memory, compute)

    def times(self, count: int) -> "Estimate":
        """Return `count` such durations in a row."""
        low, mid, high = (count * seconds for seconds in (self.low, self.mid, self.high))
        return self._replace(low=low, mid=mid, high=high, memory=count * self.memory, compute=count * self.compute)


class Rate(NamedTuple):
    """Bytes/s or FLOP/s; `low`, `high`: the ends of a duration by it, over its median; the kind of its source."""

    value: float
    low: float
    high: float
    source: str

    def seconds(self, amount: float, bound: Bound) -> Estimate:
        """Return the seconds of so many bytes or FLOPs."""
        mid = amount / self.value
        moving, computing = mid if bound in ("memory", "link") else 0.0, mid if bound == "compute" else 0.0
        return Estimate(mid * self.low, mid, mid * self.high, bound, self.source, moving, computing)


def longest(estimates: Sequence[Estimate]) -> Estimate:
    """The maximum of several bounds: of their medians, and of each end of their intervals.

    Of what arithmetic bounds, the seconds that its bytes take move with the memory all the same: products of a few
    tokens wait for both, and their measured rates of arithmetic say so."""
    main = estimates[0]
    low, high, memory = main.low, main.high, main.memory
    for other in estimates[1:]:
        if other.mid > main.mid:
            main = other
        low, high, memory = max(low, other.low), max(high, other.high), max(memory, other.memory)
    if main.bound != "compute":
        memory = main.memory
    compute = min(main.compute, main.mid - memory)
    return Estimate(min(low, main.mid), main.mid, high, main.bound, main.source, memory, compute)
