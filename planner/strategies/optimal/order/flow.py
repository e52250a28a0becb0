"""Seconds of a pass of one batch block by block: what comes and what is computed go on at once and slow each other."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from helmsman.planner.strategies.optimal.order.pace import HOST, LEAST, Pace, Track
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers

_DONE = 1e-12
"""Seconds that are none."""


def flow_seconds(blocks: Sequence[Pace], crossings: Mapping[int, float], buffers: int) -> float:
    """Until the last of `blocks` is done. `crossings`: seconds before a block, by its place; `buffers`: for how many
    blocks of a device something may be there."""
    of = {on: _Link(_coming(blocks, on), buffers) for on in {block.on for block in blocks if block.link > 0}}
    links, now = tuple(of.values()), 0.0
    for place, block in enumerate(blocks):
        now += _worked(block, crossings.get(place, 0.0) + block.before, links)
        if block.link > 0:
            own = of[block.on]
            while own.place <= place:
                now += _waited(links)
            now += _worked(block, block.used, links)
            own.room += 1
            now += _worked(block, block.after, links)
    return now


def flows(orders: Chosen, track: Track, buffers: int) -> Numbers:
    """Return the seconds of many `orders` (orders, blocks) of ways of one batch for which at most one link brings
    anything, crossings included; O(blocks) steps, each for all of them.

    While something is on its way and there is room, operations and link go on at constant speeds: what of a block's
    work is done meanwhile follows from how much may come until the next buffer is free."""
    link, before, used, after, loss, drag, first, last = track.figures[orders.T].transpose(2, 0, 1)
    loss = np.minimum(loss, 1 - LEAST)
    comes, done = link > 0, link.cumsum(axis=0)
    number = comes.cumsum(axis=0)
    crossing, now = crossed(first.astype(np.intp), last.astype(np.intp), track)
    room = _room(comes, done, number, buffers)
    works = np.stack([before + crossing, used, after], axis=1)
    most, needed = works / (1 - loss)[:, None], np.where(comes, done, 0.0)
    come = np.zeros(len(orders))
    for work, longest, slower, kept, limits, needs in zip(works, most, loss, drag, room, needed, strict=True):
        for part, limit in enumerate(limits):
            beside = np.minimum((limit - come) / kept, longest[part])
            now, come = now + work[part] + slower * beside, come + kept * beside
            if not part:
                waits = np.maximum(needs - come, 0.0)
                now, come = now + waits, come + waits
    return now


def crossed(first: Chosen, last: Chosen, track: Track) -> tuple[Numbers, Numbers]:
    """Seconds of crossings before every block (blocks, orders), and after the last; blocks begin and end at the host
    (0) or an accelerator."""
    places = range(HOST, 1 + max(*track.ends, *(pace.on for pace in track.pace)))
    table = np.array([[track.crossings.get((source, target), 0.0) for target in places] for source in places])
    begins, ends = (side - HOST for side in track.ends)
    first, last = first - HOST, last - HOST
    before = np.vstack([np.full_like(last[:1], begins), last[:-1]])
    return table[before, first], table[last[-1], ends]


def _room(comes: NDArray[np.bool_], done: Numbers, number: Chosen, buffers: int) -> Numbers:
    """Seconds of the link (blocks, parts, orders) up to which it may work during each part of a block, the last of
    which follows what is done with what came."""
    orders, limits = np.arange(done.shape[1]), links_room(comes, done, number, buffers)
    freed = limits[number - comes, orders]
    return np.stack([freed, freed, limits[number, orders]], axis=1)


def links_room(comes: NDArray[np.bool_], done: Numbers, number: Chosen, buffers: int) -> Numbers:
    """Seconds of the link (blocks, orders) up to which it may work when so many are done with what came for them."""
    orders = np.arange(done.shape[1])
    repeat = np.repeat(done[-1:], len(done) + 1, axis=0)
    some = comes & (number >= buffers)
    repeat[(number - buffers)[some], np.broadcast_to(orders, some.shape)[some]] = done[some]
    return repeat


class _Link:
    """What comes on a link, for which blocks (place, seconds), one after the other. `place`: the block for which
    something is on its way, infinite after the last; `left`: seconds of that; `room`: for how many more there is."""

    __slots__ = ("left", "place", "queue", "room")

    def __init__(self, queue: Iterable[tuple[float, float]], room: int) -> None:
        self.queue, self.room = iter(queue), room
        self.place, self.left = next(self.queue)

    def advance(self, seconds: float) -> None:
        """The link works for so many seconds at its full speed, at most until what is on its way is there."""
        self.left -= seconds
        if self.left <= _DONE:
            self.place, self.left = next(self.queue, (inf, inf))
            self.room -= 1


def _coming(blocks: Sequence[Pace], on: int) -> Iterator[tuple[float, float]]:
    return ((place, block.link) for place, block in enumerate(blocks) if block.on == on and block.link > 0)


def _busy(links: Iterable[_Link]) -> list[_Link]:
    """Those on which something is on its way: there is something, and room for it."""
    return [link for link in links if link.room > 0 and link.left < inf]


def _worked(block: Pace, work: float, links: Iterable[_Link]) -> float:
    """Seconds of some work of a block, while links bring what they have room for."""
    now = 0.0
    while work > _DONE:
        busy = _busy(links)
        if not busy:
            return now + work
        step = min(work / block.speed, *(link.left / block.drag for link in busy))
        for link in busy:
            link.advance(step * block.drag)
        work -= step * block.speed
        now += step
    return now


def _waited(links: Iterable[_Link]) -> float:
    """Seconds until the next of what comes is there, while nothing is computed."""
    busy = _busy(links)
    step = min(link.left for link in busy)
    for link in busy:
        link.advance(step)
    return step
