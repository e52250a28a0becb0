"""The order of interleaved runs: A B B A A B B A, so that what drifts meanwhile touches both alike."""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

Side = Literal["baseline", "candidate"]
_SIDES: tuple[Side, Side] = ("baseline", "candidate")

SideT = TypeVar("SideT")


def interleaved(runs: int) -> Iterator[Side]:
    """Yield the side of each of 2 x `runs` runs; neighbouring pairs begin with the other side in turn."""
    return alternating(_SIDES, runs)


def alternating(sides: Sequence[SideT], runs: int) -> Iterator[SideT]:
    """Yield every side `runs` times: all of them in order, then all in the order turned round, and so on."""
    for number in range(runs):
        yield from sides if number % 2 == 0 else reversed(sides)
