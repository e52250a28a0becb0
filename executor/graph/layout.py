"""The plans that a chain of stages can do: whole units on devices that hold all they need (HELM-44)."""

from dataclasses import dataclass
from itertools import pairwise

import torch

from helmsman.executor.devices.torch.buffers import DTYPES
from helmsman.executor.passes.phase_pass import MOVES, PhasePass
from helmsman.lowering.dataflow import HIDDEN, TOKEN
from helmsman.lowering.graph import Task
from helmsman.lowering.paging import windows
from helmsman.lowering.rules import homes, kv_rule
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan

_REMEDY = "plan with `strategy` layer-split, or leave `backend` out"


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """`devices`: of every unit, the device that runs it; `weights`, `kv`: the types of weights and caches."""

    devices: tuple[str, ...]
    weights: torch.dtype
    kv: torch.dtype

    @property
    def bounds(self) -> tuple[int, ...]:
        """The units at which the device changes."""
        return tuple(unit for unit, (a, b) in enumerate(pairwise(self.devices), 1) if a != b)

    @property
    def stages(self) -> tuple[str, ...]:
        """The device of every stage, in order."""
        return tuple(self.devices[unit] for unit in (0, *self.bounds))


def layout_of(plan: Plan, passes: tuple[PhasePass, PhasePass]) -> GraphLayout:
    """Where every unit runs. Raises UsageError for a plan that is more than a split into whole units."""
    if windows(plan):
        raise _refused("prompts of plans with windows of caches go through in parts", "kv")
    first, step = (_devices(plan, one_pass) for one_pass in passes)
    if first != step:
        raise _refused("prompts and steps run on different devices", "compute")
    return GraphLayout(first, *_types(plan))


def unit_of(task: Task, units: int) -> int:
    """The partition unit of a task that computes."""
    if task.layer is not None:
        return task.layer + 1
    return 0 if task.op == "embedding" else units - 1


def _devices(plan: Plan, phase_pass: PhasePass) -> tuple[str, ...]:
    devices: dict[int, set[str]] = {}
    for task in phase_pass.tasks:
        if task.batch:
            raise _refused("several batches take turns", "schedule.order")
        if task.kind not in MOVES:
            if task.rows is not None:
                raise _refused(f"{task.op} of block {task.layer} is divided", "compute")
            devices.setdefault(unit_of(task, plan.model.units), set()).add(task.resource)
    for unit, names in devices.items():
        if len(names) > 1:
            raise _refused(f"unit {unit} runs on {' and '.join(sorted(names))}", "compute")
    for task in phase_pass.tasks:
        if task.kind in MOVES:
            _check_move(task)
    return tuple(devices[unit].pop() for unit in range(plan.model.units))


def _check_move(task: Task) -> None:
    if task.kind != "transfer" or task.operation not in (HIDDEN, TOKEN):
        place = "" if task.layer is None else f" of block {task.layer}"
        raise _refused(f"{task.op}{place} would have to be moved", "residence")


def _types(plan: Plan) -> tuple[torch.dtype, torch.dtype]:
    formats = dict.fromkeys(piece.rule.format for tensor in tensors(plan.model) for piece in homes(plan, tensor))
    caches = dict.fromkeys(kv_rule(plan, layer).format for layer in range(plan.model.layers))
    for used, field in ((formats, "residence"), (caches, "kv")):
        if len(used) > 1 or next(iter(used)) not in DTYPES:
            shown = ", ".join(used)
            raise _refused(f"all must have one of the formats {', '.join(DTYPES)}, not {shown}", field)
    return DTYPES[next(iter(formats))], DTYPES[next(iter(caches))]


def _refused(reason: str, field: str) -> UsageError:
    return UsageError(f"captured graphs run whole units where their weights are: {reason}", field=field, remedy=_REMEDY)
