"""Several batches that overlap, followed by the clock: the order in which they take turns decides how lanes wait for
each other, which no closed form says: its cycles were up to a third off.

Only ranges that may be among the best are followed: those whose lanes alone, whatever waits for what, need no more
seconds than the best that was followed, or little more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from helmsman.planner.strategies.op_split.candidates import Candidates
from helmsman.planner.strategies.op_split.dataflow import Dataflow
from helmsman.planner.strategies.op_split.options import Mask
from helmsman.planner.strategies.op_split.pipeline import Indices, LaneSeconds, Seconds
from helmsman.planner.strategies.op_split.steady import period
from helmsman.planner.strategies.op_split.streams import mixed

_FOLLOWED_RATIO = 1.05
"""The ratio to the best up to which a range is followed as well: runner-ups are told, and predicted."""


@dataclass(frozen=True, slots=True)
class _ConfiguredRows:
    """Rows of one configuration."""

    rows: Indices
    compressed: bool
    stored: tuple[str, ...]


def follow(
    candidates: Candidates,
    flow: Dataflow,
    lanes: LaneSeconds,
    compressed: Mask,
    set_index: Indices,
    sets: Sequence[tuple[str, ...]],
) -> None:
    """Replace the total of `lanes` by what the clock says where a range may be among the best, and elsewhere by no less
    than its lanes alone need."""
    configured = list(_configured(np.flatnonzero(np.isfinite(lanes.total)), compressed, set_index, sets))
    bound, slowing = np.full(len(lanes.total), np.inf), np.zeros(len(lanes.total))
    for group in configured:
        section = candidates.section(group.rows, group.compressed, group.stored, lanes.s2d[group.rows])
        bound[group.rows] = candidates.bound(group.rows, section, group.compressed, group.stored)
        slowing[group.rows] = candidates.slowing(group.rows, section, group.compressed, group.stored)
    total, left = np.maximum(lanes.total, bound), np.isfinite(bound)
    best, fresh = np.inf, left & (bound <= total.min(initial=np.inf))
    while fresh.any():
        rows = np.flatnonzero(fresh)
        total[rows] = np.maximum(bound[rows], _period(candidates, flow, rows, configured)) + slowing[rows]
        left &= ~fresh
        best = min(best, float(total[rows].min()))
        fresh = left & (bound <= best * _FOLLOWED_RATIO)
    lanes.total[:] = total


def _configured(
    rows: Indices, compressed: Mask, set_index: Indices, sets: Sequence[tuple[str, ...]]
) -> Iterator[_ConfiguredRows]:
    keys = 2 * set_index[rows] + compressed[rows]
    for key in np.unique(keys):
        yield _ConfiguredRows(rows[keys == key], bool(key % 2), sets[int(key) // 2])


def _period(candidates: Candidates, flow: Dataflow, rows: Indices, configured: Sequence[_ConfiguredRows]) -> Seconds:
    """Seconds per layer of some rows by the clock."""
    parts = []
    for group in configured:
        here = np.flatnonzero(np.isin(rows, group.rows))
        if len(here):
            parts.append((here, candidates.streams(rows[here], group.compressed, group.stored)))
    start, stop = candidates.start[rows], candidates.stop[rows]
    return period(flow, mixed(len(rows), parts), start, stop, candidates.batches, flow.prefetch)
