"""Weights that come to the accelerator in every pass: from the host's memory to the slots of their operations."""

from typing import TYPE_CHECKING

from helmsman.executor._kernels import Stage, StreamedWeights
from helmsman.executor.chains import Stops
from helmsman.executor.moves import Move, Read
from helmsman.executor.passes import WEIGHTS, Pass, Use, carried
from helmsman.executor.staging import Staging
from helmsman.executor.storage import Storage
from helmsman.executor.weight_moves import WeightMoves
from helmsman.executor.weights.store import Store
from helmsman.lowering.graph import Task
from helmsman.schemas.plan import Plan

if TYPE_CHECKING:
    from helmsman.executor._kernels import WeightMove


def brings_weights(task: Task) -> bool:
    """Whether a task brings an operation's weights."""
    return task.kind == "transfer" and carried(task).endswith(WEIGHTS)


def streamed_weights(plan: Plan, found: Pass, staging: Staging, store: Store, stage: Stage) -> StreamedWeights | None:
    """What the operations of `stage` bring in a pass, and when, as the plan's schedule has it; None: nothing.

    The weights come as `helm-run` moves them, to the same sets of buffers."""
    moves = WeightMoves(plan, found, staging, store, Storage({}, {}), Stops({}))
    sets, owners = dict[object, int](), dict[object, int]()
    operations = []
    for use, tasks in _by_use(found).items():
        _, slot = staging.of(use)[0]
        which = sets.setdefault(slot.set, len(sets)), owners.setdefault(slot.owner, len(owners))
        each = [_native(move) for task in tasks for move in moves.moves(task)]
        operations.append((_operation(stage, use), *which, each))
    ahead, together = plan.schedule.overlap == "next-layer", plan.schedule.barrier
    return StreamedWeights(operations, ahead, together) if operations else None


def _by_use(found: Pass) -> dict[Use, list[int]]:
    """The tasks that bring weights, by what computes with them."""
    uses: dict[Use, list[int]] = {}
    for index, task in enumerate(found.tasks):
        if brings_weights(task):
            uses.setdefault(found.uses[found.user[index]], []).append(index)
    return uses


def _operation(stage: Stage, use: Use) -> int:
    return stage.ops.index(use.op if use.layer is None else f"{use.layer}.{use.op}")


def _native(move: Move | Read) -> "WeightMove":
    assert isinstance(move, Move), "what comes from storage is refused"
    return move.target, move.target_offset, move.source, move.source_offset, move.pieces.fixed
