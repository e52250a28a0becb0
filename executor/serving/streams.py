"""Weights that come to the accelerator in every pass: from the host's memory to the slots of their operations."""

from dataclasses import dataclass

from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.iterations import PassWeights, WeightMove
from helmsman.executor.devices.move_calls import Move, Read
from helmsman.executor.devices.parts import Buffer, Stage
from helmsman.executor.devices.tensors import Linear
from helmsman.executor.homes.staging import Staging
from helmsman.executor.homes.storage import Storage
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.moves.weight_moves import WeightMoves
from helmsman.executor.passes.chains import Stops
from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.plan import Plan


@dataclass(frozen=True)
class TokenTable:
    """The token table at home in the host's memory, and where the rows of a pass come, of each sub-batch."""

    home: Buffer
    format: StoredFormat
    shape: tuple[int, int]
    targets: tuple[Buffer, ...]

    def linear(self, batch: int) -> Linear:
        """As the embedding of a sub-batch reads them."""
        target, columns = self.targets[batch], self.shape[1]
        rows = target.size // size_of(columns, self.format)
        return {"weight": target, "format": self.format, "rows": rows, "columns": columns, "bias": None, "first": 0}


def table_of(store: WeightLoader, memory: DeviceMemory, rows: int, batches: int) -> TokenTable | None:
    """For up to `rows` of `batches` sub-batches; None where the table lives in `memory`, in which it is read."""
    tensor = store.tensor("embedding.weight", None)
    rule, (vocab, columns) = store.rule(tensor), tensor.shape
    if memory.name in (rule.memory, *rule.replicas):
        return None
    home, fmt = store.here(tensor, range(vocab), rule.memory)
    size = rows * size_of(columns, fmt)
    targets = tuple(memory.alloc(size, "looked-up rows") for _ in range(batches))
    return TokenTable(home, fmt, (vocab, columns), targets)


def streamed_weights(
    plan: Plan, phase_pass: PhasePass, staging: Staging, store: WeightLoader, stage: Stage, table: TokenTable | None
) -> PassWeights | None:
    """Return what the operations of `stage` bring in a pass, and when, as the plan's schedule has it; None: nothing.

    The weights come as `helm-run` moves them, to the same sets of buffers."""
    moves = WeightMoves(plan, phase_pass, staging, store, Storage({}, {}), Stops({}))
    sets, owners = dict[object, int](), dict[object, int]()
    operations = []
    for use, tasks in _by_use(phase_pass).items():
        _, slot = staging.of(use)[0]
        which = sets.setdefault(slot.set, len(sets)), owners.setdefault(slot.owner, len(owners))
        natives = [_native(move) for task in tasks for move in moves.moves(task)]
        operations.append((_operation(stage, use), *which, natives))
    ahead, together = plan.schedule.overlap == "next-layer", plan.schedule.barrier
    looked_up = None if table is None else (table.home, table.format, *table.shape, table.targets)
    return PassWeights(operations, ahead, together, looked_up) if operations or looked_up else None


def _by_use(phase_pass: PhasePass) -> dict[DeviceUse, list[int]]:
    """The tasks that bring weights in every pass, by what computes with them."""
    uses: dict[DeviceUse, list[int]] = {}
    for index, task in enumerate(phase_pass.tasks):
        comes = task.kind == "transfer" and task.payload == "weights" and task.operation != "embedding"
        if comes and not phase_pass.comes_to_slots(index):
            uses.setdefault(phase_pass.uses[phase_pass.user[index]], []).append(index)
    return uses


def _operation(stage: Stage, use: DeviceUse) -> int:
    return stage.ops.index(use.op if use.layer is None else f"{use.layer}.{use.op}")


def _native(move: Move | Read) -> "WeightMove":
    assert isinstance(move, Move), "what comes from storage is refused"
    return move.target, move.target_offset, move.source, move.source_offset, move.pieces.fixed
