"""Streams that every operation's part on the accelerator waits for, over arrays of ranges."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from helmsman.planner.strategies.op_split.clock import StreamedSeconds
from helmsman.planner.strategies.op_split.dataflow import DataflowStep
from helmsman.planner.strategies.op_split.pipeline import Indices, Seconds, prefix


@dataclass(frozen=True, slots=True, eq=False)
class Streams:
    """The streams of a configuration: `columns` of a layer's table by unit, the operation of every unit, whether all is
    `compressed`, and the operations whose weights come from storage."""

    columns: Mapping[str, Seconds]
    ops: tuple[str, ...]
    compressed: bool
    stored: tuple[str, ...]

    def __call__(self, step: DataflowStep, start: Indices, stop: Indices) -> StreamedSeconds | None:
        """Return what is streamed for a step in the ranges [start, stop); None for nothing."""
        if step.name not in self.ops:
            return None
        stored, suffix = step.name in self.stored, "_q" if self.compressed else ""
        packed = self.compressed and not stored
        sums = {
            "storage": self._sums("storage" if stored else None, step, start, stop),
            "weights": self._sums("staged" if stored else f"weights{suffix}", step, start, stop),
            "weights_work": self._sums("decompress_weights" if packed else None, step, start, stop),
            "caches": self._sums(f"cache{suffix}", step, start, stop),
            "caches_work": self._sums("decompress_cache" if self.compressed else None, step, start, stop),
        }
        return StreamedSeconds(**sums) if any(seconds.any() for seconds in sums.values()) else None

    def of(self, steps: Iterable[DataflowStep], start: Indices, stop: Indices) -> dict[str, StreamedSeconds | None]:
        """By step, what is streamed for it."""
        return {step.name: self(step, start, stop) for step in steps}

    def _sums(self, column: str | None, step: DataflowStep, start: Indices, stop: Indices) -> Seconds:
        if column is None:
            return np.zeros(len(start))
        first, count = step.first, self.ops.count(step.name)
        sums = prefix(self.columns[column][first : first + count])
        a, b = (np.clip(bound - first, 0, count) for bound in (start, stop))
        return np.asarray(sums[np.maximum(a, b)] - sums[a])


def mixed(
    count: int, parts: Iterable[tuple[Indices, Mapping[str, StreamedSeconds | None]]]
) -> dict[str, StreamedSeconds | None]:
    """The streams of `count` ranges of which some rows have one configuration, others another."""
    result: dict[str, StreamedSeconds | None] = {}
    for rows, streams in parts:
        for name, stream in streams.items():
            whole = result.setdefault(name, None)
            if stream is not None:
                if whole is None:
                    whole = result[name] = StreamedSeconds(*(np.zeros(count) for _ in StreamedSeconds.__slots__))
                for column in StreamedSeconds.__slots__:
                    getattr(whole, column)[rows] = getattr(stream, column)
    return result
