"""Counts the hits of slots for the least recent experts, for every number of slots in one pass over a trace.

The distance of an expert is how many others were used since it was used last: with more slots than that it hits. All
experts of a pass are looked up when it begins, and are the most recent after it in ascending order, as
`scheduler.expert_cache` has it, so that what few slots hold, more slots hold too."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class PassHits(NamedTuple):
    """Counts of a pass: `wanted`, its distinct experts; `by_slots`: by number of slots from 1 on, those in slots."""

    wanted: int
    by_slots: tuple[int, ...]


def pass_hits(passes: Iterable[Iterable[int]], experts: int) -> list[PassHits]:
    """Return the hits of every pass of a layer of so many `experts`; slots begin empty. O(chosen x experts) a pass."""
    recent: list[int] = []
    result = []
    for chosen in passes:
        wanted = sorted(set(chosen))
        nearer = [0] * experts
        for expert in wanted:
            if expert in recent:
                nearer[len(recent) - 1 - recent.index(expert)] += 1
        result.append(PassHits(len(wanted), _summed(nearer)))
        used = set(wanted)
        recent = [*(expert for expert in recent if expert not in used), *wanted]
    return result


def _summed(nearer: Sequence[int]) -> tuple[int, ...]:
    """Return the sums of the first 1, 2, ... numbers."""
    total, sums = 0, []
    for count in nearer:
        total += count
        sums.append(total)
    return tuple(sums)


def hit_shares(hits: Sequence[PassHits], slots: Sequence[int]) -> list[float]:
    """Return by number of slots the share of wanted experts that were there, over all of these passes together."""
    wanted = sum(one.wanted for one in hits)
    return [sum(one.by_slots[count - 1] for one in hits) / wanted if wanted else 0.0 for count in slots]
