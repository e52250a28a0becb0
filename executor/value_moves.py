"""What the moves of activations and tokens move: rows of workspaces."""

from dataclasses import dataclass

from helmsman.executor.formats import F32_BYTES
from helmsman.executor.halves import HIDDEN_MADE
from helmsman.executor.moves import Move, Pieces
from helmsman.executor.passes import Pass, Use
from helmsman.executor.seats import Seats
from helmsman.lowering.activations import TOKEN_BYTES
from helmsman.lowering.graph import Task
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
    "final_norm": "normed",
}
"""In which region of a workspace an operation leaves its values."""


@dataclass(frozen=True)
class ValueMoves:
    """The moves of the activations of one pass."""

    plan: Plan
    found: Pass
    seats: Seats

    def token(self, task: Task) -> Move:
        """The choice, on its way to where the next pass's embedding is looked up."""
        source = self.seats[self.found.device_of("head"), task.batch]
        pieces = Pieces(fixed=TOKEN_BYTES * self.plan.workload.batch)
        return Move(source.chosen, 0, source.tokens, 0, pieces)

    def move(self, index: int) -> Move:
        """What an operation made, on its way to another device."""
        task = self.found.tasks[index]
        maker = self.found.uses[task.deps[0]]
        user = self.found.uses[self.found.user[index]]
        source, target = self.seats[maker.device, task.batch], self.seats[user.device, task.batch]
        region = source.stage.regions()[VALUES[maker.op]]
        rows, stride = self.plan.workload.batch, region["stride"]
        whole = Pieces(fixed=rows * stride) if maker.op == "final_norm" else Pieces(per_token=rows * stride)
        if maker.op in ("scores", "softmax"):
            at, pieces = self._scores(maker, stride)
        else:
            at, pieces = self._columns(maker, region["row_bytes"], stride, whole)
        if maker.op in HIDDEN_MADE and source.hidden is not None and target.hidden is not None:
            return Move(source.hidden, at, target.hidden, at, pieces)
        offset = region["offset"] + at
        return Move(source.workspace, offset, target.workspace, offset, pieces)

    def _columns(self, maker: Use, row_bytes: int, stride: int, whole: Pieces) -> tuple[int, Pieces]:
        """Offset and pieces of the columns that an operation made."""
        model = self.plan.model
        unit = model.heads // model.kv_heads * model.head_dim if maker.op == "wv" else 1
        first, size = F32_BYTES * unit * maker.start, F32_BYTES * unit * (maker.stop - maker.start)
        if maker.op in ("norm1", "norm2", "final_norm", "append", "embedding", "attention") or size == row_bytes:
            return 0, whole
        strides, counts = (0, stride), (1, self.plan.workload.batch)
        return first, Pieces(fixed=size, counts=counts, rows=1, source_strides=strides, target_strides=strides)

    def _scores(self, maker: Use, stride: int) -> tuple[int, Pieces]:
        """Scores or weights of some heads, of the positions that there are."""
        model = self.plan.model
        heads, group = model.heads, model.heads // model.kv_heads
        by_head = stride // heads
        first, count = (maker.start * group, (maker.stop - maker.start) * group) if maker.op == "scores" else (0, heads)
        strides, counts = (stride, by_head), (self.plan.workload.batch, count)
        return first * by_head, Pieces(0, F32_BYTES, F32_BYTES, counts, 0, 0, strides, strides)
