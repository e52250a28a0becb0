"""Seconds by what was done, as the paper's figures 4 and 5 break a step down (PARK-06)."""

from dataclasses import dataclass

from helmsman.lowering.graph import CACHED, Task
from helmsman.schemas.hardware import Hardware
from helmsman.simulator.overlap import CPU, GPU, H2D, LaneKinds, OverlapShares


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Seconds at work, summed over lanes: rows overlap, so they do not add up to the makespan.

    `compute`, `decompression`: on accelerators; `cache`, `weights`: their way into accelerators' memory, from storage
    too; `cpu`; `other`: all other transfers, activations and what is written back; `idle`: seconds in which no
    accelerator worked."""

    compute: float = 0.0
    decompression: float = 0.0
    cache: float = 0.0
    weights: float = 0.0
    cpu: float = 0.0
    other: float = 0.0
    idle: float = 0.0


ROWS = ("compute", "decompression", "cache", "weights", "cpu", "other", "idle")


class BreakdownSum:
    """Adds up a replay: its `add` is told of every task that is done."""

    def __init__(self, hardware: Hardware) -> None:
        self._kinds = LaneKinds(hardware)
        self._seconds = dict.fromkeys(ROWS, 0.0)

    def add(self, _: int, task: Task, start: float, end: float) -> None:
        """A task worked from `start` to `end`."""
        self._seconds[self._row(task)] += end - start

    def breakdown(self, shares: OverlapShares) -> Breakdown:
        """The rows, with the accelerators' idle seconds from what worked together."""
        idle = shares.h2d + shares.h2d_cpu + shares.cpu + shares.other + shares.idle
        return Breakdown(**{**self._seconds, "idle": idle})

    def _row(self, task: Task) -> str:
        kind = self._kinds.flag(task.resource)
        if kind == CPU:
            return "cpu"
        if kind == GPU:
            return "decompression" if task.kind == "decompress" else "compute"
        if kind == H2D and task.payload == "weights":
            return "weights"
        return "cache" if kind == H2D and task.payload in CACHED else "other"
