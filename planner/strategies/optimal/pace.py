"""What the order of blocks depends on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

HOST = -1
"""The host among devices; accelerators are numbered from 0."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a block of one way: its operations while nothing comes (`chain`), what comes for it (`link`), and from
    when that begins to come until it is done (`through`), of which nothing that came is needed any more during the
    last (`after`).

    `loss`: which share of their speed operations lose while a link works; `drag`: which share of its own the link keeps
    beside them. `on`: the accelerator that has any of it, or the host; `first`, `last`: where it begins and ends;
    `busy`: seconds of a batch on the accelerator and on the host."""

    chain: float
    link: float
    through: float
    after: float
    loss: float = 0.0
    drag: float = 1.0
    on: int = 0
    first: int = 0
    last: int = 0
    busy: tuple[float, float] = (0.0, 0.0)

    @property
    def beside(self) -> float:
        """Seconds of its operations while the link never rests."""
        return self.chain / (1 - self.loss)

    @property
    def before(self) -> float:
        """Seconds of its operations that do not wait for what comes last."""
        return max(0.0, self.chain - self._last) if self.link else self.chain

    @property
    def used(self) -> float:
        """Seconds of its operations from when all has come until nothing of it is needed."""
        return max(0.0, min(self.chain, self._last) - self.after) if self.link else 0.0

    @property
    def _last(self) -> float:
        """Seconds of its operations that wait for what comes last."""
        return self.through - self.link


@dataclass(frozen=True)
class Track:
    """What the order of blocks depends on: the `pace` of every way, `crossings` between devices (from, to) in seconds,
    how many `batches` a pass advances, and where it begins and `ends`."""

    pace: tuple[Pace, ...]
    crossings: Mapping[tuple[int, int], float] = field(default_factory=dict)
    batches: int = 1
    ends: tuple[int, int] = (HOST, HOST)
