"""The moves of activations and tokens: rows of workspaces."""

from dataclasses import dataclass
from functools import cached_property

from helmsman.executor.devices.move_calls import Move, Pieces
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.passes.halves import HIDDEN_MADE
from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass
from helmsman.executor.stages.expert_operations import CHOICE, MESSAGE, SUM
from helmsman.executor.stages.seats import Seat, Seats
from helmsman.lowering.activations import TOKEN_BYTES
from helmsman.lowering.bodies.experts_apart import COMBINE
from helmsman.lowering.bodies.per_layer_input import LAYER_NORM, LAYER_TABLE
from helmsman.lowering.graph import Task
from helmsman.lowering.row_values import layer_input_values
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.hardware import NATIVE_KINDS
from helmsman.schemas.plan import Plan

VALUES = {
    "embedding": "hidden",
    "norm1": "normed",
    "q": "q",
    "k": "k",
    "v": "v",
    "append": "q",
    "scores": "scores",
    "softmax": "scores",
    "wv": "attended",
    "attention": "attended",
    "o": "hidden",
    "norm2": "normed",
    "gate": "gate",
    "up": "up",
    "down": "hidden",
    "router": MESSAGE,
    "experts_down": "hidden",
    "latent_in": "latent_in",
    "latent_out": "hidden",
    "shared_gate": "shared_gate",
    "shared_up": "shared_up",
    "shared_down": "hidden",
    "post_norm1": "hidden",
    "post_norm2": "hidden",
    "post_norm3": "hidden",
    "post_norm4": "hidden",
    "delta_out": "hidden",
    "scan_out": "hidden",
    "conv_out": "hidden",
    "combine": "hidden",
    "final_norm": "normed",
}
"""In which region of a workspace an operation leaves its values."""

_WHOLE = (
    "norm1",
    "norm2",
    "final_norm",
    "append",
    "embedding",
    "attention",
    "router",
    "experts_down",
    "combine",
    "post_norm1",
    "post_norm2",
    "post_norm3",
    "post_norm4",
)
"""Operations that make whole rows, whatever they are divided by."""

_BY_COLUMN = {"o": ("embedding", "down"), "up": ("gate",), "down": ("o",)}
"""By operation, those of whose values its part reads the columns that it makes itself, and no others."""


@dataclass(frozen=True)
class ValueMoves:
    """The moves of the activations of one pass."""

    plan: Plan
    phase_pass: PhasePass
    seats: Seats

    def token(self, task: Task) -> Move:
        """The choice, on its way to where the next pass's embedding is looked up."""
        source = self.seats[self.phase_pass.device_of("head"), task.batch]
        pieces = Pieces(fixed=TOKEN_BYTES * self._chosen_rows)
        return Move(source.chosen, 0, source.tokens, 0, pieces)

    def _layer_inputs(self, source: Seat, target: Seat) -> Move:
        """Return the move of what layers read of all tokens of a pass beside hidden states."""
        assert source.layer_inputs is not None and target.layer_inputs is not None, "a model whose layers have inputs"
        row = F32_BYTES * layer_input_values(self.plan.model)
        return Move(source.layer_inputs, 0, target.layer_inputs, 0, Pieces(per_token=self.plan.workload.batch * row))

    def choice(self, task: Task, scratch: Buffer) -> Move:
        """A router's choice, on its way to where experts wait that it may have chosen."""
        seat = self.seats[self.phase_pass.uses[task.deps[0]].device, task.batch]
        region = seat.stage.regions()[CHOICE]
        pieces = Pieces(per_token=self.plan.workload.batch * region["stride"])
        return Move(seat.workspace, region["offset"], scratch, 0, pieces)

    def move(self, index: int) -> Move:
        """Return the move of an operation's output on its way to another device."""
        task = self.phase_pass.tasks[index]
        maker = self.phase_pass.uses[task.deps[0]]
        user = self.phase_pass.uses[self.phase_pass.user[index]]
        source, target = self.seats[maker.device, task.batch], self.seats[user.device, task.batch]
        if maker.op in (LAYER_TABLE, LAYER_NORM):
            return self._layer_inputs(source, target)
        value = SUM if user.op == COMBINE and maker.op == "experts_down" else VALUES[maker.op]
        region = source.stage.regions()[value]
        rows, stride = self.plan.workload.batch, region["stride"]
        whole = (
            Pieces(fixed=self._chosen_rows * stride) if maker.op == "final_norm" else Pieces(per_token=rows * stride)
        )
        if maker.op in ("scores", "softmax"):
            at, pieces = self._scores(maker, stride)
        else:
            at, pieces = self._columns(self._moved(index, maker), region["row_bytes"], stride, whole)
        if value == "hidden" and maker.op in HIDDEN_MADE and source.hidden is not None and target.hidden is not None:
            return Move(source.hidden, at, target.hidden, at, pieces)
        offset = region["offset"] + at
        return Move(source.workspace, offset, target.workspace, offset, pieces)

    @property
    def _chosen_rows(self) -> int:
        """Return for how many rows of a pass the head chooses at most."""
        return self.plan.workload.batch * self.phase_pass.step_tokens

    def _moved(self, index: int, maker: DeviceUse) -> tuple[int, int] | None:
        """The columns [start, stop) that are moved of what `maker` has made, perhaps none: only those that are read,
        since its device may be changing others by then. None: whole rows."""
        made = self._made(maker)
        readers = [self.phase_pass.uses[reader] for reader in self.phase_pass.readers[index]]
        if self._launches_rows or not all(maker.op in _BY_COLUMN.get(reader.op, ()) for reader in readers):
            return made
        start, stop = min(reader.start for reader in readers), max(reader.stop for reader in readers)
        if made is not None:
            start, stop = max(start, made[0]), min(stop, made[1])
        return start, max(start, stop)

    @cached_property
    def _launches_rows(self) -> bool:
        """Whether whole rows are quicker than some columns: every piece of a copy is launched for itself, as GPUs' are.
        Of two devices neither reads what comes beside its columns; of three one may have that from another."""
        kinds = {device.name: device.kind for device in self.plan.hardware.devices}
        computing = self.phase_pass.devices
        return len(computing) == 2 and any(kinds[name] not in NATIVE_KINDS for name in computing)

    def _made(self, maker: DeviceUse) -> tuple[int, int] | None:
        """The columns that an operation makes, None: whole rows."""
        if maker.op in _WHOLE:
            return None
        if maker.op != "wv":
            return maker.start, maker.stop
        shape = self._heads(maker)
        unit = shape.heads // shape.kv_heads * shape.head_dim
        return unit * maker.start, unit * maker.stop

    def _heads(self, maker: DeviceUse) -> Attention:
        """Return the heads of the block of an operation of attention."""
        attention = self.plan.model.attention(maker.layer or 0)
        assert attention is not None, "a block that attends"
        return attention

    def _columns(
        self, columns: tuple[int, int] | None, row_bytes: int, stride: int, whole: Pieces
    ) -> tuple[int, Pieces]:
        """Offset and pieces of some columns, of all where these are None."""
        if columns is None:
            return 0, whole
        first, size = (F32_BYTES * end for end in (columns[0], columns[1] - columns[0]))
        if size == row_bytes:
            return 0, whole
        strides, counts = (0, stride), (1, self.plan.workload.batch)
        return first, Pieces(fixed=size, counts=counts, rows=1, source_strides=strides, target_strides=strides)

    def _scores(self, maker: DeviceUse, stride: int) -> tuple[int, Pieces]:
        """Scores or weights of some heads, of the positions that there are."""
        shape = self._heads(maker)
        heads, group = shape.heads, shape.heads // shape.kv_heads
        by_head = stride // heads
        first, count = (maker.start * group, (maker.stop - maker.start) * group) if maker.op == "scores" else (0, heads)
        strides, counts = (stride, by_head), (self.plan.workload.batch, count)
        return first * by_head, Pieces(0, F32_BYTES, F32_BYTES, counts, 0, 0, strides, strides)
