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
    `free` (beginnings, buffers): when each buffer is, the first to be used first; `rows` (beginnings, blocks): ways."""

    least: Numbers
    now: Numbers
    link: Numbers
    chain: Numbers
    coming: Numbers
    left: Chosen
    free: Numbers
    rows: Chosen

    def only(self, which: Chosen) -> "_Begun":
        """Some of them."""
        return _Begun(**{name: values[which] for name, values in vars(self).items()})


def followed(counts: Mapping[int, int], pace: Sequence[Pace], buffers: int, evenness: float) -> tuple[int, ...]:
    """The rows of all blocks in the best order that was found; `buffers`: for how many of them something may be there
    at once; O(blocks x beginnings followed x ways)."""
    names, left = np.array(list(counts)), np.array([list(counts.values())])
    ways = _beside([pace[row] for row in counts])
    chain, coming = left @ ways.chain, left @ ways.link
    worth = evenness * max(float(chain[0]), float(coming[0]))
    zero = np.zeros(1)
    best = _Begun(np.maximum(chain, coming), zero, zero, chain, coming, left, np.zeros((1, buffers)), left[:, :0])
    for _ in range(int(left.sum())):
        later = _later(best, ways)
        rank = later.least + worth * abs(later.chain / (chain[0] or 1.0) - later.coming / (coming[0] or 1.0))
        kept = _few(later)
        best = later.only(kept[np.argsort(rank[kept], kind="stable")[:_FOLLOWED]])
    return tuple(names[best.rows[0]].tolist())


def _beside(paces: Sequence[Pace]) -> _Ways:
    def of(what: str) -> Numbers:
        return np.array([getattr(each, what) / (1 - each.loss) for each in paces])

    link = np.array([each.link / each.drag for each in paces])
    return _Ways(link, of("before"), of("used"), of("after"), of("chain"))


def _later(begun: _Begun, ways: _Ways) -> _Begun:
    """With one more block, of each way that is left."""
    which, way = np.nonzero(begun.left)
    old, comes = begun.only(which), ways.link[way] > 0.0
    link = np.where(comes, np.maximum(old.link, old.free[:, 0]) + ways.link[way], old.link)
    done = np.maximum(old.now + ways.before[way], link) + ways.used[way]
    now = np.where(comes, done + ways.after[way], old.now + ways.chain[way])
    free = np.where(comes[:, None], np.hstack([old.free[:, 1:], done[:, None]]), old.free)
    left, rows = old.left.copy(), np.hstack([old.rows, way[:, None]])
    left[np.arange(len(way)), way] -= 1
    chain, coming = old.chain - ways.chain[way], old.coming - ways.link[way]
    least = np.where(left.any(axis=1), np.maximum(link, free[:, 0]) + coming, 0.0)
    return _Begun(np.maximum(now + chain, least), now, link, chain, coming, left, free, rows)


def _few(found: _Begun) -> Chosen:
    """Of those with the same blocks the best few."""
    blocks = np.unique(found.left, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((found.link, found.now, found.least, blocks))
    group = blocks[order]
    first = np.searchsorted(group, group)
    return np.asarray(order[np.arange(len(order)) - first < _ALIKE])
