"""Compositions as published methods have them: all blocks in one way, but for those that live on the accelerator.

They often add up to more than mixtures of ways, and less of that is lost in order."""

from math import inf

import numpy as np

from helmsman.planner.strategies.optimal.program.compose import Composition
from helmsman.planner.strategies.optimal.program.ways import Numbers, Room, Ways


def simple(ways: Ways, room: Room, resident: int | None, most: int, fewer: bool = False) -> tuple[Composition, ...]:
    """Those that fit and add up to least: at most so many of one way for all blocks, and as many of a way and the way
    `resident`, for which nothing comes, of which there are as many blocks as there is room for; with `fewer`, as many
    of each with half of these, a quarter, ... one of them.

    The kinds are not compared: they often add up to the same, and blocks of one way lose least in order. More room for
    `resident` ones would push out the others, which a question with less room has."""
    counts = [np.zeros(len(ways))]
    judged = [_judged(ways, room, counts[0], 0)]
    if resident is not None:
        counts += _halved(_most(ways, room, resident), fewer)
        judged += [np.where(some > 0, _judged(ways, room, some, resident), inf) for some in counts[1:]]
    pairs = [(row, int(way)) for row, seconds in enumerate(judged) for way in np.argsort(seconds, kind="stable")[:most]]
    taken = ((way, int(counts[row][way]), float(judged[row][way])) for row, way in pairs)
    composed = (_composed(way, many, room.blocks, resident, seconds) for way, many, seconds in taken if seconds < inf)
    return tuple(dict.fromkeys(composed))


def _halved(counts: Numbers, fewer: bool) -> list[Numbers]:
    """Counts of resident blocks (ways), and with `fewer` half of them, a quarter, ... while any is left."""
    result = [counts]
    while fewer and result[-1].max(initial=0.0) > 1:
        result.append(np.floor(result[-1] / 2))
    return result


def _most(ways: Ways, room: Room, resident: int) -> Numbers:
    """How many blocks of the way `resident` there is room for beside those of every other way (ways)."""
    more = ways.kept[resident] - ways.kept
    spare = room.free - ways.coming @ room.buffers - room.blocks * ways.kept
    most = np.where(more > 0, spare / np.where(more > 0, more, 1.0), room.blocks - 1.0).min(axis=1)
    most[resident] = 0.0
    return np.asarray(np.clip(np.floor(most), 0, room.blocks - 1))


def _judged(ways: Ways, room: Room, counts: Numbers, resident: int) -> Numbers:
    """Seconds (ways) with so many blocks in the way `resident`; infinite for what does not fit."""
    own, there = (room.blocks - counts)[:, None], counts[:, None]
    kept = own * ways.kept + there * ways.kept[resident]
    fits = (kept + ways.coming @ room.buffers <= room.free).all(axis=1)
    lanes = room.ends + own * ways.lanes + there * ways.lanes[resident]
    return np.where(fits, room.seconds(lanes), inf)


def _composed(way: int, many: int, blocks: int, resident: int | None, seconds: float) -> Composition:
    counts = {way: blocks} if resident is None or not many else {way: blocks - many, resident: many}
    return Composition(tuple(sorted(counts.items())), seconds)
