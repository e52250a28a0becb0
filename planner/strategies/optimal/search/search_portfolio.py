"""The searches for finalists: room for what is on its way, and among which ways."""

from collections.abc import Sequence
from math import inf
from typing import Literal, NamedTuple

from helmsman.planner.strategies.streaming.place import Frame, Quarter

Among = Literal["any", "even", "plain", "undivided"]
"""Of which ways: any, those for which not much more comes than for others on average, those that keep nothing in 4-bit
groups where they are used, or those whose prompts have no shares of their own."""


class Try(NamedTuple):
    """For how many blocks `ahead` there is room, for how many times as long (`most`) as a block works what it waits for
    may come, `among` which ways, and which share of the time that a block's link and operations wait for each other is
    `lost`; `near`: of which nothing comes from the store."""

    ahead: int
    most: float
    among: Among
    lost: float
    near: bool = False


ALL = Try(1, inf, "any", 0.0)
"""All ways, with room for one block ahead."""

_TRIED: tuple[Try, ...] = (
    Try(1, inf, "any", 0.05),
    Try(1, 1.7, "any", 0.0),
    ALL,
    Try(1, inf, "any", 0.1),
)
"""Until a plan is good: few blocks run ahead, so the more evenly they ask for the link the nearer are plans to what
they add up to."""

_FROM_STORE: tuple[Try, ...] = (ALL, Try(1, inf, "even", 0.0), Try(2, inf, "even", 0.0))
"""The same where weights come from a store: it is slow, and a block of which much comes from there is waited for."""

_PACKED: tuple[Try, ...] = (Try(1, 1.7, "any", 0.0), ALL, Try(2, inf, "even", 0.0), Try(1, inf, "plain", 0.0))
"""The same where weights may be in 4-bit groups: expanding those that are there keeps memory busy while it is used."""

_SEVERAL: tuple[Try, ...] = (ALL, Try(1, 1.7, "any", 0.0), Try(1, inf, "any", 0.05))
"""The same for several accelerators, which have buffers of their own."""

_PROMPTS: tuple[Try, ...] = (Try(1, 1.3, "any", 0.0), Try(1, 1.7, "undivided", 0.0), Try(1, inf, "undivided", 0.0))
"""At last, where prompts count: what crosses between sides in prompts delays more than it adds up to, and a prompt
leaves the host so long that blocks that stream all of their shared rows ask evenly for the link."""


def tried(frame: Frame, quarters: Sequence[Quarter], prompts: bool) -> tuple[Try, ...]:
    """Return what is tried for blocks of such a frame, of which so much may be in 4-bit groups, each once; `prompts`:
    whether they count."""
    if frame.roles.accelerator is None:
        return ()
    if len(frame.roles.accelerators) > 1:
        return _SEVERAL
    return tuple(dict.fromkeys((*_of_weights(frame, quarters), *(_PROMPTS if prompts else ()))))


def _of_weights(frame: Frame, quarters: Sequence[Quarter]) -> tuple[Try, ...]:
    """The same, by where weights may be and how: where the store was asked for, what is tried without it too, since a
    plan must not be slower for what it may use."""
    without = _PACKED if "weights" in quarters else _TRIED
    if frame.store is None:
        return without
    return (*_FROM_STORE, *(attempt._replace(near=True) for attempt in without if frame.store.requested))
