"""The order of a pass: its stages and moves, the stamps they leave, and which of lowering's tasks each stamp ends."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from helmsman.executor.devices.opening import Devices
from helmsman.executor.graph.build import build
from helmsman.executor.graph.ir import HelmGraph
from helmsman.executor.graph.layout import unit_of
from helmsman.executor.graph.marks import UnitMark, marks_of
from helmsman.executor.graph.operations import Names
from helmsman.executor.graph.partition import GraphStage
from helmsman.executor.graph.program import ActivationMove, PreparedPass, StageWork, TaskTime
from helmsman.executor.graph.tensors import DeviceTensors, LinkCrossing
from helmsman.executor.passes.phase_pass import PhasePass
from helmsman.lowering.dataflow import HIDDEN, TOKEN
from helmsman.lowering.tensors import linears
from helmsman.schemas.errors import BadInputError


class Timeline:
    """Collects the stages of a pass in order; see `prepared`."""

    def __init__(self, phase_pass: PhasePass, graph: HelmGraph, names: Names, devices: Devices, file: str) -> None:
        self._phase_pass, self._graph, self._names, self._devices, self._file = phase_pass, graph, names, devices, file
        units = phase_pass.plan.model.units
        moves = [(index, task) for index, task in enumerate(phase_pass.tasks) if task.kind == "transfer"]
        self._computing = {
            (unit_of(task, units), task.op): index
            for index, task in enumerate(phase_pass.tasks)
            if task.kind != "transfer"
        }
        self._entering: dict[int, list[int]] = {}
        for index, task in moves:
            if task.operation == HIDDEN:
                self._entering.setdefault(unit_of(task, units), []).append(index)
        self._returning = [index for index, task in moves if task.operation == TOKEN]
        self._rows = {op: rows for op, rows, *_ in linears(phase_pass.plan.model)}
        self._steps: list[StageWork | ActivationMove] = []
        self._timed: dict[int, TaskTime] = {}
        self._stamps = np.zeros(2 * len(phase_pass.tasks) + phase_pass.plan.model.units)
        self._used = 0
        self._like: Tensor | None = None

    def add(
        self, stage: GraphStage, device: DeviceTensors, placed: Mapping[str, Tensor], caches: Mapping[str, Tensor]
    ) -> None:
        """The next stage, after what brings its activation."""
        if self._like is not None:
            self._steps += [self._move(index, self._like) for index in self._entering.get(stage.first, [])]
        marks = marks_of(stage, self._graph, self._names)
        begin = self._take(len(marks) + 1)
        calls = {mark.node: _stamp(self._stamps, begin + place) for place, mark in enumerate(marks, 1)}
        module = build(stage, placed, device.device, calls)
        for place, mark in enumerate(marks):
            self._time(mark, begin + place)
        self._steps.append(StageWork(device, module.forward, stage.inputs, caches, begin))
        self._like = stage.output

    def prepared(self, batch: int) -> PreparedPass:
        """The whole pass. Raises BadInputError when lowering has tasks that the module does not."""
        chosen = torch.empty(batch, dtype=torch.int32)
        returning = [self._move(index, chosen) for index in self._returning]
        missing = [task.name for index, task in enumerate(self._phase_pass.tasks) if index not in self._timed]
        if missing:
            raise self._differs(f"nothing in the module does {missing[0]}")
        timed = [self._timed[index] for index in range(len(self._phase_pass.tasks))]
        return PreparedPass(self._steps, returning, self._stamps, timed)

    def _move(self, index: int, like: Tensor) -> ActivationMove:
        task, begin = self._phase_pass.tasks[index], self._take(2)
        ends = self._devices.memories[task.memories[0]], self._devices.memories[task.memories[1]]
        crossing = LinkCrossing(self._devices.lanes[task.resource].engine, ends, like, "an activation on its way")
        self._timed[index] = TaskTime(begin, begin + 1)
        return ActivationMove(crossing, begin, index)

    def _time(self, mark: UnitMark, begin: int) -> None:
        """Operations that are one product share its time by their rows."""
        rows = [self._rows.get(op, 1) for op in mark.ops]
        reached = 0
        for op, count in zip(mark.ops, rows, strict=True):
            index = self._computing.get((mark.unit, op))
            if index is None:
                raise self._differs(f"the plan's model has no {op}")
            shares = reached / sum(rows), (reached + count) / sum(rows)
            self._timed[index] = TaskTime(begin, begin + 1, *shares)
            reached += count

    def _take(self, count: int) -> int:
        self._used += count
        return self._used - count

    def _differs(self, how: str) -> BadInputError:
        remedy = "plan again from this checkpoint's config.json"
        return BadInputError(f"the module differs from the plan's model: {how}", file=self._file, remedy=remedy)


def _stamp(stamps: NDArray[np.float64], place: int) -> Callable[[], None]:
    def mark() -> None:
        stamps[place] = time.monotonic()

    return mark
