"""The order of blocks in a pass of one batch, by following its most promising beginnings block by block.

A beginning is as good as the least time that it leaves for the rest: what is to be computed follows what is, and what
is to come follows what has come, as far as buffers of each accelerator allow. Where that is the same for many, evenness
decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from helmsman.planner.strategies.optimal.pace import HOST, Track
from helmsman.planner.strategies.optimal.ways import Chosen, Numbers

_FOLLOWED, _ALIKE = 32, 3
"""So many beginnings are followed at a time, of which so many have the same blocks in other orders."""

_SIDES, _TINY = 2, 1e-300
"""The host and one accelerator; seconds that are none."""

EVENNESS = (0.0, 0.1)
"""How much of a pass it counts if all that is computed is done before anything comes, or the other way round."""


@dataclass(frozen=True, eq=False)
class _Ways:
    """Seconds (ways) of a block beside busy links: what comes for it, its operations before that must be there, those
    that use it, those that follow, and all of them. `on`: the number of its link; `begins`, `ends`: where."""

    link: Numbers
    before: Numbers
    used: Numbers
    after: Numbers
    chain: Numbers
    on: Chosen
    begins: Chosen
    ends: Chosen


@dataclass(frozen=True, eq=False)
class _Begun:
    """Beginnings, side by side. `least`: seconds that no end of one beats; `now`, `link` (beginnings, links): when its
    operations are done, and what comes for it is there; `chain`, `coming`: seconds of both that are left; `left`
    (beginnings, ways): blocks; `free` (beginnings, links, buffers): when each buffer is, the first to be used first;
    `before`, `way`: which beginning it continues, with a block of which way."""

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


def followed(counts: Mapping[int, int], track: Track, buffers: int, evenness: float) -> tuple[int, ...]:
    """The rows of all blocks in the best order that was found; `buffers`: for how many of them something may be there
    at once, on each accelerator; O(blocks x beginnings followed x ways)."""
    names, left = np.array(list(counts)), np.array([list(counts.values())])
    ways, crossings = _beside(counts, track), _crossings(counts, track)
    links = 1 + int(ways.on.max())
    chain, coming = left @ ways.chain, left @ (ways.link[:, None] * (ways.on[:, None] == np.arange(links)))
    worth = evenness * max(float(chain[0]), float(coming.max()))
    shares = 1 / max(float(chain[0]), _TINY), 1 / np.maximum(coming[0], _TINY) / links
    none, free = np.zeros(1, dtype=np.intp), np.zeros((1, links, buffers))
    best = [_Begun(np.maximum(chain, coming.max()), np.zeros(1), free[..., 0], chain, coming, left, free, none, none)]
    at = np.array([track.ends[0] - HOST])
    for _ in range(int(left.sum())):
        later = _later(best[-1], ways, crossings, at)
        rank = later.least + worth * abs((later.chain * shares[0])[:, None] / links - later.coming * shares[1]).sum(
            axis=1
        )
        kept = _few(later)
        best.append(later.only(kept[rank[kept].argsort(kind="stable")[:_FOLLOWED]]))
        at = ways.ends[best[-1].way]
    return tuple(names[_taken(best)].tolist())


def _taken(best: Sequence[_Begun]) -> list[int]:
    """The ways of all blocks of the best of the last beginnings, which continues one of those before."""
    found, place = list[int](), 0
    for begun in best[:0:-1]:
        found.append(int(begun.way[place]))
        place = int(begun.before[place])
    return found[::-1]


def _beside(counts: Mapping[int, int], track: Track) -> _Ways:
    """Blocks beside a link that never rests, or, as long as all of them work, beside all."""
    paces = [track.pace[row] for row in counts]
    devices = sorted({each.on for each in paces if each.link}) or [0]
    most = [
        sum(track.pace[row].link * count for row, count in counts.items() if track.pace[row].on == on) for on in devices
    ]
    total = max(*most, sum(track.pace[row].chain * count for row, count in counts.items()))
    every = min(most) / total if len(devices) > 1 and total else 0.0

    def of(what: str) -> Numbers:
        return np.array([getattr(each, what) / (1 - each.loss - every * (each.lost - each.loss)) for each in paces])

    link = np.array([each.link / (each.drag + every * (each.dragged - each.drag)) for each in paces])
    on = np.array([devices.index(each.on) if each.link else 0 for each in paces])
    begins, ends = (np.array([getattr(each, end) - HOST for each in paces]) for end in ("first", "last"))
    return _Ways(link, of("before"), of("used"), of("after"), of("chain"), on, begins, ends)


def _crossings(counts: Mapping[int, int], track: Track) -> Numbers:
    """Seconds of crossings (from, to) where there are several accelerators: with one, orders differ in little else."""
    places = range(HOST, 1 + max(track.ends[0], *(track.pace[row].on for row in counts)))
    several = len(places) > _SIDES
    return np.array([[several * track.crossings.get((a, b), 0.0) for b in places] for a in places])


def _later(begun: _Begun, ways: _Ways, crossings: Numbers, at: Chosen) -> _Begun:
    """With one more block, of each way that is left; `at`: where the hidden states of beginnings are."""
    which, way = begun.left.nonzero()
    on, brought, places = ways.on[way], ways.link[way], np.arange(len(way))
    now, link, free = begun.now[which] + crossings[at[which], ways.begins[way]], begun.link[which], begun.free[which]
    comes = brought > 0.0
    there, own = link[places, on], free[places, on]
    there = np.where(comes, np.maximum(there, own[:, 0]) + brought, there)
    done = np.maximum(now + ways.before[way], there) + ways.used[way]
    now = np.where(comes, done + ways.after[way], now + ways.chain[way])
    link[places, on] = there
    free[places, on] = np.where(comes[:, None], np.concatenate([own[:, 1:], done[:, None]], axis=1), own)
    left, coming = begun.left[which], begun.coming[which]
    left[places, way] -= 1
    coming[places, on] -= brought
    chain = begun.chain[which] - ways.chain[way]
    later = (np.maximum(link, free[..., 0]) + coming).max(axis=1)
    least = np.maximum(now + chain, np.where(left.any(axis=1), later, 0.0))
    return _Begun(least, now, link, chain, coming, left, free, which, way)


def _few(found: _Begun) -> Chosen:
    """Of those with the same blocks the best few."""
    order = np.lexsort((found.link.sum(axis=1), found.now, found.least, *found.left.T[::-1]))
    left = found.left[order]
    places = np.arange(len(order))
    first = np.where((left != left[places - 1]).any(axis=1), places, 0)
    first[0] = 0
    return np.asarray(order[places - np.maximum.accumulate(first) < _ALIKE])
