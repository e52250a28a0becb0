"""The worth of one more, or one less, of something: the slope of the divisible value, and what solving again says."""

from collections.abc import Iterator
from dataclasses import dataclass

from helmsman.planner.strategies.optimal.explain.divisible import DivisibleSolution, NearbyQuestion
from helmsman.planner.strategies.optimal.explain.quantities import Quantity
from helmsman.planner.strategies.optimal.program.ways import Numbers

STEPS = (1e-2, 1e-3, 1e-4)
"""By how much of itself a quantity is changed to solve again: the largest step along which the slope stays."""

_SMALL = 1e-3
"""By how much the Lagrangian's slope is taken, to both sides."""

_AGREEMENT = 0.03
"""The share up to which a slope and what solving again gives may differ and agree."""

_NOTHING = 1e-4
"""The share of the seconds, by doubling, below which a price is nothing."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Seconds that are saved by a base unit more, or lost by one less: `price` by duals, `again` by solving again with
    a change of `step`, as a share of what there is."""

    price: float
    again: float
    step: float


@dataclass(frozen=True, slots=True)
class PricedQuantity:
    """The worth of a quantity: `more` of it, `less` of it (None: then nothing fits). `shares`: of the seconds of each
    phase, the part that shrinks with it."""

    quantity: Quantity
    more: Slope | None
    less: Slope | None
    shares: tuple[float, ...]

    @property
    def kinked(self) -> bool:
        """Whether more gains another amount than less costs."""
        if self.more is None or self.less is None:
            return True
        return not _agree(self.more.price, self.less.price, 0.0)


def priced(
    near: NearbyQuestion, solved: DivisibleSolution, quantity: Quantity, shown: DivisibleSolution | None = None
) -> PricedQuantity:
    """The worth of a quantity at a solution of `near`; `shown`: another solution, whose seconds are shared out."""
    both = near.with_more(quantity, 1 + _SMALL), near.with_more(quantity, 1 - _SMALL)
    slope = float(_change(both, solved).sum()) / quantity.size
    more, less = (_side(near, solved, quantity, slope, sign) for sign in (1, -1))
    shown = shown or solved
    return PricedQuantity(quantity, more, less, tuple(_shares(near.priced(shown), _change(both, shown))))


def _change(both: tuple[NearbyQuestion, NearbyQuestion], solved: DivisibleSolution) -> Numbers:
    """By how much the parts of the Lagrangian shrink with all of a quantity, by what a little more and less do."""
    up, down = (neighbour.priced(solved) for neighbour in both)
    return (down - up) / (2 * _SMALL)


def _shares(seconds: Numbers, change: Numbers) -> Iterator[float]:
    for total, part in zip(seconds[:-1], change[:-1], strict=True):
        yield float(part / total) if total > 0 else 0.0


def _side(near: NearbyQuestion, solved: DivisibleSolution, quantity: Quantity, slope: float, sign: int) -> Slope | None:
    """The slope to one side: that at the solution, or where it changes there, that of the solution beside it."""
    side: Slope | None = None
    for step in STEPS:
        there = near.with_more(quantity, 1 + sign * step)
        beside = there.solved(solved.near)
        if beside is None:
            continue
        moved = sign * step * quantity.size
        again = (solved.seconds - beside.seconds) / moved
        if _agree(slope, again, solved.seconds / quantity.size):
            return Slope(slope, again, step)
        own = float(near.priced(beside).sum() - there.priced(beside).sum()) / moved
        side = Slope(own, again, step)
    return side


def _agree(one: float, other: float, unit: float) -> bool:
    largest = max(abs(one), abs(other))
    return largest <= _NOTHING * unit or abs(one - other) <= _AGREEMENT * largest
