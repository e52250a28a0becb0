"""Seconds of a pass of one batch block by block: what comes and what is computed go on at once and slow each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from helmsman.planner.strategies.optimal.pace import Pace

LEAST = 0.1
"""The least speed that several busy links leave."""


def flow_seconds(blocks: Sequence[Pace], crossings: Mapping[int, float], buffers: int) -> float:
    """Until the last of `blocks` is done. `crossings`: seconds before a block, by its place; `buffers`: for how many
    blocks of a device something may be there."""
    links = {on: _Link(tuple(_coming(blocks, on)), buffers) for on in {block.on for block in blocks if block.link > 0}}
    now = 0.0
    for place, block in enumerate(blocks):
        link = links.get(block.on) if block.link > 0 else None
        now += _worked(block, crossings.get(place, 0.0) + block.before, links)
        if link is not None:
            while not link.has_come(place):
                now += _waited(links)
        now += _worked(block, block.used, links)
        if link is not None:
            link.released += 1
        now += _worked(block, block.after, links)
    return now


@dataclass
class _Link:
    """A link, and for which blocks (place, seconds) what comes on it; `at`: the one that is on its way, with seconds
    that are `left`; `released`: how many are done with what came."""

    queue: tuple[tuple[int, float], ...]
    buffers: int
    at: int = 0
    released: int = 0
    left: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.queue[0][1]

    @property
    def busy(self) -> bool:
        """Whether anything is on its way: there is something, and room for it."""
        return self.at < len(self.queue) and self.at - self.released < self.buffers

    def has_come(self, place: int) -> bool:
        """Whether what a block waits for is there."""
        return self.at == len(self.queue) or self.queue[self.at][0] > place

    def advance(self, seconds: float) -> None:
        """The link works for so many seconds at its full speed, at most until what is on its way is there."""
        self.left -= seconds
        if self.left <= 1e-12:
            self.at += 1
            self.left = self.queue[self.at][1] if self.at < len(self.queue) else inf


def _coming(blocks: Sequence[Pace], on: int) -> Iterator[tuple[int, float]]:
    return ((place, block.link) for place, block in enumerate(blocks) if block.on == on and block.link > 0)


def _worked(block: Pace, work: float, links: Mapping[int, _Link]) -> float:
    """Seconds of some work of a block, while links bring what they have room for."""
    now = 0.0
    while work > 1e-12:
        busy = [link for link in links.values() if link.busy]
        pace = max(LEAST, 1 - block.loss * len(busy))
        step = min([work / pace, *(link.left / block.drag for link in busy)])
        for link in busy:
            link.advance(step * block.drag)
        work -= step * pace
        now += step
    return now


def _waited(links: Mapping[int, _Link]) -> float:
    """Seconds until the next of what comes is there, while nothing is computed."""
    busy = [link for link in links.values() if link.busy]
    step = min(link.left for link in busy)
    for link in busy:
        link.advance(step)
    return step
