"""In which order blocks of several ways follow each other, so that what comes is there when it is needed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, permutations

import numpy as np

from helmsman.planner.strategies.optimal.order.flow import flow_seconds, flows
from helmsman.planner.strategies.optimal.order.pace import HOST, Pace, Track

_OFFSETS = (0.0, 0.25, 0.5, 0.75, 1.0)
_RUNS = (1, 2, 4, 8)
"""The numbers of ranges into which the blocks of each device are divided."""

_PERMUTED = 4
"""The number of devices up to which every order of them is tried; of more, theirs."""
_MAX_EXCHANGES = 6
"""The number of exchanges of neighbours, at most."""


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """Blocks in order, by way, and their `seconds`."""

    rows: tuple[int, ...]
    seconds: float


def arranged_each(many: Sequence[Mapping[int, int]], track: Track, buffers: int) -> list[BlockOrder]:
    """Return the best order among patterns for each of `many` counts of blocks by way.

    Blocks of every way are spread evenly over all blocks, those that need the link most a little later than others."""
    orders = [tuple(_spread(counts, track.pace, offset)) for counts in many for offset in _OFFSETS]
    arranged = list(map(BlockOrder, orders, timed(orders, track, buffers)))
    step = len(_OFFSETS)
    patterns = (arranged[first : first + step] for first in range(0, len(arranged), step))
    return [min(patterned, key=lambda order: order.seconds) for patterned in patterns]


def lined_up(known: BlockOrder, counts: Mapping[int, int], track: Track, buffers: int) -> BlockOrder:
    """Return the blocks as they are `known`, or in ranges of several devices, whichever takes least; with neighbours
    exchanged where that is quickly followed: in one batch, unless links of several devices bring something."""
    orders = [known.rows, *_in_ranges(counts, track)]
    took = timed(orders, track, buffers)
    best = orders[took.index(min(took))]
    if track.single(counts):
        best = exchanged(best, track, buffers)
    return BlockOrder(best, seconds(best, track, buffers))


def _in_ranges(counts: Mapping[int, int], track: Track) -> Iterator[tuple[int, ...]]:
    """The blocks of several devices in a few ranges of each."""
    if _several(counts, track):
        yield from (rows for runs in _RUNS for rows in _ranges(counts, track.pace, runs))


def _several(counts: Mapping[int, int], track: Track) -> bool:
    return len({track.pace[way].on for way in counts} - {HOST}) > 1


def timed(orders: Sequence[Sequence[int]], track: Track, buffers: int) -> list[float]:
    """The seconds of many orders of as many blocks."""
    if not orders or not track.single(set(chain.from_iterable(orders))):
        return [seconds(rows, track, buffers) for rows in orders]
    rows = np.array(orders)
    took = flows(rows, track, buffers)
    for worth, other in track.others:
        took = took + worth * flows(rows, other, buffers)
    return list(took.tolist())


def seconds(rows: Sequence[int], track: Track, buffers: int) -> float:
    """Until the last block is done, in all passes: what comes for a block waits for the link and for buffers that those
    before have done with, its operations for the block before and for what comes."""
    others = sum(worth * seconds(rows, other, buffers) for worth, other in track.others)
    return others + _pass_seconds(rows, track, buffers)


def _pass_seconds(rows: Sequence[int], track: Track, buffers: int) -> float:
    """Return the seconds of one pass."""
    if track.turns is not None:
        return track.turns(tuple(rows), buffers)
    return _flowed([track.pace[row] for row in rows], track, buffers)


def _flowed(blocks: Sequence[Pace], track: Track, buffers: int) -> float:
    """Return the seconds for one batch."""
    before = (track.ends[0], *(block.last for block in blocks))
    after = (*(block.first for block in blocks), track.ends[1])
    crossed = [track.crossings.get(pair, 0.0) for pair in zip(before, after, strict=True)]
    return flow_seconds(blocks, dict(enumerate(crossed)), buffers) + crossed[-1]


def _spread(counts: Mapping[int, int], pace: Sequence[Pace], offset: float) -> Iterator[int]:
    """Every way at even distances; `offset`: how much of one of them the way that needs the link most is behind."""
    needs = {way: pace[way].link / (pace[way].link + pace[way].chain) for way in counts}
    most = max(needs.values()) or 1.0
    places = [
        ((number + (1 - offset) / 2 + offset * needs[way] / most) / count, way)
        for way, count in counts.items()
        for number in range(count)
    ]
    return (way for _, way in sorted(places))


def _ranges(counts: Mapping[int, int], pace: Sequence[Pace], runs: int) -> Iterator[tuple[int, ...]]:
    """The blocks of each device in so many ranges, devices in every order."""
    devices = sorted({pace[way].on for way in counts})
    members = {on: {way: count for way, count in counts.items() if pace[way].on == on} for on in devices}
    inside = {on: tuple(_spread(mine, pace, 0.5)) for on, mine in members.items()}
    for order in permutations(devices) if len(devices) <= _PERMUTED else (tuple(devices),):
        yield tuple(way for run in range(runs) for on in order for way in _part(inside[on], run, runs))


def _part(rows: tuple[int, ...], run: int, runs: int) -> tuple[int, ...]:
    return rows[run * len(rows) // runs : (run + 1) * len(rows) // runs]


def exchanged(rows: tuple[int, ...], track: Track, buffers: int) -> tuple[int, ...]:
    """Blocks in an order in which neighbours were exchanged while that helps, the best exchange first."""
    best, least = rows, timed([rows], track, buffers)[0]
    for _ in range(_MAX_EXCHANGES):
        places = [place for place in range(len(best) - 1) if best[place] != best[place + 1]]
        others = [(*best[:place], best[place + 1], best[place], *best[place + 2 :]) for place in places]
        took = timed(others, track, buffers)
        if min(took, default=least) >= least:
            break
        least = min(took)
        best = others[took.index(least)]
    return best
