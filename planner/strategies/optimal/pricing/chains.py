"""Who does the operations of a block, and when they are done one after the other."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from helmsman.planner.strategies.optimal.configurations.block_ways import Division, Source
from helmsman.planner.strategies.optimal.program.ways import Numbers

Bools = NDArray[np.bool_]

GROUPS = (("norm1",), ("q", "k", "v"), ("append",), ("attention",), ("o",), ("norm2",), ("gate",), ("up",), ("down",))
"""Operations of a block in order; those of a group do not wait for each other."""

OPS = tuple(op for group in GROUPS for op in group)


@dataclass(frozen=True, eq=False)
class WorkShares:
    """Who does an operation in every way (ways, operations), 0 or 1: the `host`, the `accelerator`, or, by division,
    `both`; `come`: whether weights come of which the accelerator has all, by where from.

    `cached`, `sent` (ways): whether past keys and values come, and new ones go home; `packed`: in 4-bit groups."""

    host: Numbers
    both: Mapping[Division, Numbers]
    accelerator: Numbers
    come: Mapping[Source, Numbers]
    cached: Numbers
    sent: Numbers
    packed: Numbers

    @cached_property
    def shared(self) -> Numbers:
        """Which operations both do."""
        return np.asarray(sum(self.both.values(), np.zeros_like(self.host)))


def chained(
    groups: Sequence[slice], shares: WorkShares, seconds: tuple[Numbers, Numbers], crossing: tuple[float, float]
) -> tuple[Numbers, Numbers]:
    """Seconds (ways) from when what a block reads is on a side until what it makes is on the host, and on the
    accelerator, as the next block's norm needs it. `seconds` (ways, operations) on host and accelerator; `crossing` to
    the latter and back."""
    return deque(followed_through(groups, shares, seconds, crossing), maxlen=1)[0]


def followed_through(
    groups: Sequence[slice], shares: WorkShares, seconds: tuple[Numbers, Numbers], crossing: tuple[float, float]
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the seconds group after group: until what each makes is on a side."""
    (here, there), (into, back) = seconds, crossing
    at_host = at_accelerator = np.zeros(len(here))
    for part in groups:
        works, works_away = (whole[:, part] + shares.shared[:, part] > 0 for whole in (shares.host, shares.accelerator))
        end, crossed = _side_done(works, at_host, here[:, part], into)
        end_away, crossed_back = _side_done(works_away, at_accelerator, there[:, part], back)
        at_host, at_accelerator = np.maximum(end, crossed_back), np.maximum(end_away, crossed)
        yield at_host, at_accelerator


def _side_done(works: Bools, begin: Numbers, seconds: Numbers, crossing: float) -> tuple[Numbers, Numbers]:
    """When a side has done its part of a group (ways, operations) that it `works` on, and when all of that is on the
    other side: every operation's crosses by itself, one after the other. 0 where it does nothing."""
    some, count = works.any(axis=1), works.sum(axis=1)
    end = begin + seconds.sum(axis=1)
    first = begin + np.where(works, seconds, np.inf).min(axis=1, initial=np.inf)
    crossed = np.maximum(end + crossing, np.where(some, first, 0.0) + count * crossing)
    return np.where(some, end, 0.0), np.where(some, crossed, 0.0)
