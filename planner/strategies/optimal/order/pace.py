"""Timing of blocks, on which their best order depends."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from helmsman.planner.strategies.optimal.program.ways import Numbers

HOST = -1
"""The host among devices; accelerators are numbered from 0."""


LEAST = 0.1
"""The least speed that a busy link leaves."""


class Pace(NamedTuple):
    """Seconds of a block of one way: its operations while nothing comes (`chain`), and what comes for it (`link`). Of
    its operations those of `before` do not wait for the last that comes, the following are done with what came once
    they have `used` it, and those `after` follow.

    `loss`: which share of their speed operations lose while a link works; `drag`: which share of its own the link keeps
    beside them. `on`: the accelerator that has any of it, or the host; `first`, `last`: where it begins and ends."""

    chain: float
    link: float = 0.0
    before: float = 0.0
    used: float = 0.0
    after: float = 0.0
    loss: float = 0.0
    drag: float = 1.0
    on: int = 0
    first: int = 0
    last: int = 0

    @property
    def beside(self) -> float:
        """Seconds of its operations while the link never rests."""
        return self.chain / (1 - self.loss)

    @property
    def speed(self) -> float:
        """The share of their speed that operations keep while a link works."""
        return max(LEAST, 1 - self.loss)

    @property
    def through(self) -> float:
        """Seconds from when what comes for it begins to come until it is done."""
        return self.link + self.used + self.after


def paced(chain: float, link: float, through: float, after: float) -> Pace:
    """The pace of a block that is done `through` seconds after what comes for it begins to come, of which nothing is
    needed any more during the last (`after`)."""
    if not link:
        return Pace(chain, before=chain)
    waiting = min(chain, through - link)
    last = min(waiting, after)
    return Pace(chain, link, chain - waiting, waiting - last, last)


@dataclass(frozen=True)
class Track:
    """The timing model on which the order of blocks depends: the `pace` of every way, `crossings` between devices
    (from, to) in seconds, and where a pass begins and `ends`; `others`: passes through the same blocks, and what a
    second of each is worth beside one of this; `turns`: where several batches take turns, seconds of a whole pass
    through blocks of such ways with so many buffers; paces then only say how blocks are spread."""

    pace: tuple[Pace, ...]
    crossings: Mapping[tuple[int, int], float] = field(default_factory=dict)
    ends: tuple[int, int] = (HOST, HOST)
    others: tuple[tuple[float, "Track"], ...] = ()
    turns: Callable[[tuple[int, ...], int], float] | None = None

    def single(self, rows: Iterable[int]) -> bool:
        """Whether a batch passes alone, and something comes on at most one link for such ways."""
        return self.turns is None and len({self.pace[row].on for row in rows if self.pace[row].link}) <= 1

    @cached_property
    def figures(self) -> Numbers:
        """Of every way (ways, figures) the link, the parts of its operations, what both lose, and where it begins and
        ends."""
        parts = ("link", "before", "used", "after", "loss", "drag", "first", "last")
        return np.array([[getattr(pace, part) for part in parts] for pace in self.pace], dtype=np.float64)
