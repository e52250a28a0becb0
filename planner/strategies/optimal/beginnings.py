"""The order of blocks in a pass of one batch, by following its most promising beginnings block by block.

A beginning is as good as the least time that it leaves for the rest: what is to be computed follows what is, and what
is to come follows what has come, as far as buffers allow. Where that is the same for many, evenness decides."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from helmsman.planner.strategies.optimal.pace import Pace

_FOLLOWED, _ALIKE = 32, 3
"""So many beginnings are followed at a time, of which so many have the same blocks in other orders."""

EVENNESS = (0.0, 0.1)
"""How much of a pass it counts if all that is computed is done before anything comes, or the other way round."""


class _Way(NamedTuple):
    """Seconds of a block of one way beside a busy link: what comes for it, its operations before that must be there,
    those that use it, those that follow, and all of them."""

    link: float
    before: float
    used: float
    after: float
    chain: float


class _Begun(NamedTuple):
    """`least`: seconds that no end of this beginning beats; `now`, `link`: when its operations are done, and what comes
    for it is there; `chain`, `coming`: seconds of both that are left; `left`: blocks by way; `free`: when each buffer
    is, the first to be used first; `rows`: the beginning without its last block, and the way of that."""

    least: float
    now: float
    link: float
    chain: float
    coming: float
    left: tuple[int, ...]
    free: tuple[float, ...]
    rows: "tuple[_Begun, int] | None" = None


def followed(counts: Mapping[int, int], pace: Sequence[Pace], buffers: int, evenness: float) -> tuple[int, ...]:
    """The rows of all blocks in the best order that was found; `buffers`: for how many of them something may be there
    at once; O(blocks x beginnings followed x ways)."""
    ways, left = [_beside(pace[row]) for row in counts], tuple(counts.values())
    chain = sum(count * way.chain for count, way in zip(left, ways, strict=True))
    coming = sum(count * way.link for count, way in zip(left, ways, strict=True))
    worth = evenness * max(chain, coming)

    def rank(each: _Begun) -> float:
        return each.least + worth * abs(each.chain / (chain or 1.0) - each.coming / (coming or 1.0))

    best = [_Begun(max(chain, coming), 0.0, 0.0, chain, coming, left, (0.0,) * buffers)]
    for _ in range(sum(left)):
        best = sorted(_few(later for each in best for later in _later(each, ways)), key=rank)[:_FOLLOWED]
    return tuple(tuple(counts)[way] for way in _order(best[0]))


def _beside(pace: Pace) -> _Way:
    slower = 1 / (1 - pace.loss)
    parts = (slower * each for each in (pace.before, pace.used, pace.after, pace.chain))
    return _Way(pace.link / pace.drag, *parts)


def _later(begun: _Begun, ways: Sequence[_Way]) -> Iterator[_Begun]:
    """With one more block, of each way that is left."""
    for number, way in enumerate(ways):
        if begun.left[number]:
            link, free, now = begun.link, begun.free, begun.now + way.chain
            if way.link > 0.0:
                link = max(link, free[0]) + way.link
                done = max(begun.now + way.before, link) + way.used
                free, now = (*free[1:], done), done + way.after
            left = (*begun.left[:number], begun.left[number] - 1, *begun.left[number + 1 :])
            chain, coming = begun.chain - way.chain, begun.coming - way.link
            least = max(now + chain, max(link, free[0]) + coming if any(left) else 0.0)
            yield _Begun(least, now, link, chain, coming, left, free, (begun, number))


def _few(found: Iterable[_Begun]) -> Iterator[_Begun]:
    """Of those with the same blocks the best few."""
    alike: dict[tuple[int, ...], list[_Begun]] = {}
    for each in found:
        alike.setdefault(each.left, []).append(each)
    for members in alike.values():
        yield from sorted(members, key=lambda each: each[:3])[:_ALIKE]


def _order(begun: _Begun) -> list[int]:
    """The ways of its blocks."""
    found = []
    while begun.rows is not None:
        begun, way = begun.rows
        found.append(way)
    return found[::-1]
