"""The searches for finalists: each asks for compositions that lose little where blocks follow each other."""

from math import inf
from typing import NamedTuple

from helmsman.planner.strategies.streaming.place import Frame


class Try(NamedTuple):
    """Which share of the time that a block's link and operations wait for each other is taken to be `lost`, for how
    many times as long (`most`) as a block works what it waits for may come, whether prompts have no shares of their own
    (`undivided`), and whether nothing comes from the store (`near`)."""

    lost: float = 0.0
    most: float = inf
    undivided: bool = False
    near: bool = False


FIRST = Try(lost=0.05)
"""Few blocks run ahead, so the more evenly they ask for the link the nearer are plans to what they add up to."""

ALL = Try()
"""All ways, as they add up: the search that bounds every composition."""

SMOOTH = Try(most=1.7)
"""Ways whose link keeps pace with their work: blocks that stream much and others that make up for it lose in order."""

UNDIVIDED = Try(undivided=True)
"""Where prompts count: what crosses between sides in prompts delays more than it adds up to."""


def tried(frame: Frame, prompts: bool) -> tuple[Try, ...]:
    """Return what is tried for blocks of such a frame until a plan is good; `prompts`: whether they count. Where a
    store was asked for, also what is tried without it, since a plan must not be slower for what it may use."""
    if frame.roles.accelerator is None:
        return ()
    searches = (FIRST, ALL, SMOOTH, UNDIVIDED) if prompts else (FIRST, ALL, SMOOTH)
    if frame.store is None or not frame.store.requested:
        return searches
    return (*searches, *(search._replace(near=True) for search in searches))
