"""Splits whose prompts are fast: what is streamed comes from page-locked memory, in prompts too, the rest does not.

The seconds of a prompt per layer lie between those of nothing streamed and of everything, by the share of the weights
that is; a closed form that proposes, as L' does for decode steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from helmsman.lowering.tensors import linears
from helmsman.planner.strategies.op_split.pipeline import Indices, Seconds
from helmsman.planner.strategies.op_split.search import Split, SplitSearch
from helmsman.planner.strategies.streaming.division import DivisionPiece
from helmsman.schemas.model import Model


@dataclass(frozen=True, eq=False)
class PromptForm:
    """Seconds of a prompt per layer: `none` with nothing streamed; `whole`, `compressed` with everything; `weights`:
    elements of every unit's weights."""

    none: float
    whole: float
    compressed: float
    weights: Sequence[int]

    def seconds(self, split_search: SplitSearch) -> Seconds:
        """By range of a search."""
        summed = np.concatenate(([0], np.cumsum(self.weights)))
        share = (summed[split_search.stop] - summed[split_search.start]) / max(1, summed[-1])
        all_streamed = np.where(split_search.compressed, self.compressed, self.whole)
        return np.asarray(self.none + share * (all_streamed - self.none))


def elements(model: Model, units: Sequence[DivisionPiece]) -> list[int]:
    """Elements that the weights of every unit have; 0 where it has none."""
    sizes = {op: rows * columns for op, rows, columns, _ in linears(model)}
    return [sizes.get(unit.op, 0) * (unit.stop - unit.start) // unit.extent for unit in units]


def fastest(split_search: SplitSearch, seconds: Seconds, count: int) -> Iterator[Split]:
    """The first feasible splits by `seconds` of their ranges; the empty ranges are one split."""
    total = np.where(np.isfinite(split_search.lanes.total), seconds, np.inf)
    seen: set[tuple[int, int]] = set()
    for row in _ascending(total):
        start, stop = int(split_search.start[row]), int(split_search.stop[row])
        key = (0, 0) if start == stop else (start, stop)
        if len(seen) == count:
            return
        if key not in seen:
            seen.add(key)
            yield split_search.at(start, stop)


def _ascending(total: Seconds) -> Indices:
    order = np.argsort(total, kind="stable")
    return order[np.isfinite(total[order])]
