"""The order of interleaved runs: A B B A A B B A, so that what drifts meanwhile touches both alike."""

from collections.abc import Iterator
from typing import Literal

Side = Literal["baseline", "candidate"]


def interleaved(runs: int) -> Iterator[Side]:
    """Yield the side of each of 2 x `runs` runs; neighbouring pairs begin with the other side in turn."""
    for pair in range(runs):
        first: Side = "baseline" if pair % 2 == 0 else "candidate"
        second: Side = "candidate" if pair % 2 == 0 else "baseline"
        yield first
        yield second
