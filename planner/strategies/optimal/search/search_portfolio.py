"""The searches for finalists, one after the other until a plan is good (`finalists`): what adds up to least is often
not what loses least where blocks follow each other."""

from math import inf
from typing import NamedTuple

from helmsman.planner.strategies.streaming.place import Frame


class Try(NamedTuple):
    """One search. `lost`: the share of the waiting between link and operations that is added to each block's lanes;
    `most`: the largest ratio of the seconds of a block's link to those of its operations; `undivided`: without blocks
    whose prompts have shares of rows of their own; `near`: without blocks that read from the store."""

    lost: float = 0.0
    most: float = inf
    undivided: bool = False
    near: bool = False


FIRST = Try(lost=0.05)
"""The first search: 5 % of waiting counts as lost, for few blocks run ahead."""

ALL = Try()
"""All ways, as they add up: the search that bounds every composition."""

SMOOTH = Try(most=1.7)
"""Ways whose link keeps pace with their work: mixtures of blocks that stream much and little wait in any order."""

UNDIVIDED = Try(undivided=True)
"""Without divided prompts: what crosses between sides in prompts costs more than it adds up to."""


def tried(frame: Frame, prompts: bool) -> tuple[Try, ...]:
    """Return what is tried for blocks of such a frame until a plan is good; `prompts`: whether they count. Where a
    store was asked for, also what is tried without it, since a plan must not be slower for what it may use."""
    if frame.roles.accelerator is None:
        return ()
    searches = (FIRST, ALL, SMOOTH, UNDIVIDED) if prompts else (FIRST, ALL, SMOOTH)
    if frame.store is None or not frame.store.requested:
        return searches
    return (*searches, *(search._replace(near=True) for search in searches))
