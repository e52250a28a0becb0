"""The moves that passes of a served plan may have: weights and rows of tables, from the host to what computes; where
the host computes experts, messages of routers to it, and sums from there."""

from collections.abc import Iterator, Sequence

from helmsman.executor.devices.accelerators import OPENERS
from helmsman.executor.passes.phase_pass import MOVES, PhasePass
from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS, ROUTER
from helmsman.lowering.bodies.per_layer_input import LAYER_TABLE
from helmsman.lowering.dataflow import TOKEN
from helmsman.lowering.graph import Task
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan

HERE = "plan so that all weights live there: smaller formats, or fewer requests"


def check_moves(plan: Plan, passes: Sequence[PhasePass], accelerator: str, host: str | None) -> None:
    """Raise UsageError for the first of anything else; without a `host` nothing comes."""
    record = plan.hardware.device(accelerator)
    way = None if host is None else (plan.hardware.device(host).memory, record.memory)
    for one_pass, index, task in _moves(passes):
        if not one_pass.tells_choice(index):  # served requests' choices are looked up where they are
            _check(task, way)
        comes = task.payload == "weights" and task.operation != "embedding" and not one_pass.comes_to_slots(index)
        if record.kind in OPENERS and comes:
            message = "weights do not come to a PyTorch device while it serves, but rows of its table and experts"
            raise UsageError(message, field="residence", value=task.memories[0], remedy=HERE)


def _moves(passes: Sequence[PhasePass]) -> Iterator[tuple[PhasePass, int, Task]]:
    for one_pass in passes:
        yield from ((one_pass, index, task) for index, task in enumerate(one_pass.tasks) if task.kind in MOVES)


def _check(task: Task, way: tuple[str, str] | None) -> None:
    if task.kind == "decompress":
        remedy = "plan with `compress` none, and a `format` that is multiplied as it is stored"
        raise UsageError(
            "4-bit groups are not expanded while requests are served", field="residence", value=task.op, remedy=remedy
        )
    if task.kind == "pin":
        remedy = "plan with `pinning` pinned"
        raise UsageError(
            "nothing is page-locked while requests are served", field="path", value=task.path, remedy=remedy
        )
    if task.operation == TOKEN:  # those of served requests are the host's to give
        return
    if task.payload == "weights" and task.operation == LAYER_TABLE:
        message, remedy = "rows of inputs of layers are looked up where requests are served", HERE
        raise UsageError(message, field="residence", value=task.memories[0], remedy=remedy)
    between = way is not None and task.memories in (way, way[::-1])
    if between and task.operation in (ROUTER, *EXPERT_PRODUCTS) and task.payload != "weights":
        return
    if task.payload != "weights":
        message, remedy = "caches of served requests are where attention is", "plan with `kv_rule` accelerator"
        raise UsageError(message, field="kv", value=task.op, remedy=remedy)
    if task.memories != way:
        message = "weights of served requests come from the memory of the host beside the device, or live on it"
        raise UsageError(message, field="residence", value=task.memories[0], remedy="plan without `nvme` and `home`")
