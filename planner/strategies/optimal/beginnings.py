"""The order of blocks in a pass of one batch, by following its most promising beginnings block by block.

A beginning is as good as the least time that it leaves for the rest: what is to be computed follows what is, and what
is to come follows what has come, as far as buffers allow. Where that is the same for many, evenness decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from helmsman.planner.strategies.optimal.pace import Pace
from helmsman.planner.strategies.optimal.ways import Chosen, Numbers

_FOLLOWED, _ALIKE = 32, 3
"""So many beginnings are followed at a time, of which so many have the same blocks in other orders."""

EVENNESS = (0.0, 0.1)
"""How much of a pass it counts if all that is computed is done before anything comes, or the other way round."""


@dataclass(frozen=True, eq=False)
class _Ways:
    """Seconds (ways) of a block beside a busy link: what comes for it, its operations before that must be there, those
    that use it, those that follow, and all of them."""

    link: Numbers
    before: Numbers
    used: Numbers
    after: Numbers
    chain: Numbers


@dataclass(frozen=True, eq=False)
class _Begun:
    """Beginnings, side by side. `least`: seconds that no end of one beats; `now`, `link`: when its operations are done,
    and what comes for it is there; `chain`, `coming`: seconds of both that are left; `left` (beginnings, ways): blocks;
    `free` (beginnings, buffers): when each buffer is, the first to be used first; `before`, `way`: which beginning it
    continues, with a block of which way."""

    least: Numbers
    now: Numbers
    link: Numbers
    chain: Numbers
    coming: Numbers
    left: Chosen
    free: Numbers
    before: Chosen
    way: Chosen

    def only(self, which: Chosen) -> "_Begun":
        """Some of them."""
        return _Begun(*(values[which] for values in vars(self).values()))


def followed(counts: Mapping[int, int], pace: Sequence[Pace], buffers: int, evenness: float) -> tuple[int, ...]:
    """The rows of all blocks in the best order that was found; `buffers`: for how many of them something may be there
    at once; O(blocks x beginnings followed x ways)."""
    names, left = np.array(list(counts)), np.array([list(counts.values())])
    ways = _beside([pace[row] for row in counts])
    chain, coming = left @ ways.chain, left @ ways.link
    worth = evenness * max(float(chain[0]), float(coming[0]))
    zero, none = np.zeros(1), np.zeros(1, dtype=np.intp)
    least = np.maximum(chain, coming)
    best = [_Begun(least, zero, zero, chain, coming, left, np.zeros((1, buffers)), none, none)]
    for _ in range(int(left.sum())):
        later = _later(best[-1], ways)
        rank = later.least + worth * abs(later.chain / (chain[0] or 1.0) - later.coming / (coming[0] or 1.0))
        kept = _few(later)
        best.append(later.only(kept[rank[kept].argsort(kind="stable")[:_FOLLOWED]]))
    return tuple(names[_taken(best)].tolist())


def _taken(best: Sequence[_Begun]) -> list[int]:
    """The ways of all blocks of the best of the last beginnings, which continues one of those before."""
    found, place = list[int](), 0
    for begun in best[:0:-1]:
        found.append(int(begun.way[place]))
        place = int(begun.before[place])
    return found[::-1]


def _beside(paces: Sequence[Pace]) -> _Ways:
    def of(what: str) -> Numbers:
        return np.array([getattr(each, what) / (1 - each.loss) for each in paces])

    link = np.array([each.link / each.drag for each in paces])
    return _Ways(link, of("before"), of("used"), of("after"), of("chain"))


def _later(begun: _Begun, ways: _Ways) -> _Begun:
    """With one more block, of each way that is left."""
    which, way = begun.left.nonzero()
    now, there, free = begun.now[which], begun.link[which], begun.free[which]
    brought = ways.link[way]
    comes = brought > 0.0
    link = np.where(comes, np.maximum(there, free[:, 0]) + brought, there)
    done = np.maximum(now + ways.before[way], link) + ways.used[way]
    now = np.where(comes, done + ways.after[way], now + ways.chain[way])
    free = np.where(comes[:, None], np.concatenate([free[:, 1:], done[:, None]], axis=1), free)
    left = begun.left[which]
    left[np.arange(len(way)), way] -= 1
    chain, coming = begun.chain[which] - ways.chain[way], begun.coming[which] - brought
    least = np.where(left.any(axis=1), np.maximum(link, free[:, 0]) + coming, 0.0)
    return _Begun(np.maximum(now + chain, least), now, link, chain, coming, left, free, which, way)


def _few(found: _Begun) -> Chosen:
    """Of those with the same blocks the best few."""
    order = np.lexsort((found.link, found.now, found.least, *found.left.T[::-1]))
    left = found.left[order]
    places = np.arange(len(order))
    first = np.where((left != left[places - 1]).any(axis=1), places, 0)
    first[0] = 0
    return np.asarray(order[places - np.maximum.accumulate(first) < _ALIKE])
