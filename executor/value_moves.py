"""What the moves of activations, tokens and caches move: rows of workspaces, positions of keys and values."""

from dataclasses import dataclass

from helmsman.executor.chains import Stops
from helmsman.executor.kv import Cache, Caches, cache_home
from helmsman.executor.moves import Move, Pieces
from helmsman.executor.passes import Pass, Use, carried
from helmsman.executor.seats import Seats
from helmsman.executor.staging import F32_BYTES
from helmsman.executor.storage import blocks
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import TOKEN_BYTES
from helmsman.schemas.formats import size_of
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
class CacheMoves:
    """The moves of the keys and values of one pass."""

    plan: Plan
    found: Pass
    caches: Caches
    stops: Stops

    def moves(self, index: int) -> list[Move]:
        """Past keys or values on their way to where they are used, or new ones on their way home."""
        task = self.found.tasks[index]
        return [self._past_stop(index, move) for move in self._cached(index, task, carried(task))]

    def size(self, index: int) -> int:
        """Bytes that a task needs where a cache stops on its way."""
        model, workload = self.plan.model, self.plan.workload
        elements = workload.batch * model.kv_heads * workload.context * model.head_dim
        return 2 * blocks(size_of(elements, cache_home(self.plan, self.found.tasks[index].layer or 0).format))

    def _cached(self, index: int, task: Task, what: str) -> list[Move]:
        layer = task.layer or 0
        home = self.caches.home(layer, task.batch)
        back = what == "kv" and task.memories[1] == home.memory and task.kind == "transfer"
        if back:
            return self._new(self.caches.at(task.memories[0], layer, task.batch), home, layer)
        user = self.found.uses[self.found.user[index]]
        there = self.caches.at(self.plan.hardware.device(user.device).memory, layer, task.batch)
        if what == "new_kv":
            source = self.caches.at(task.memories[0], layer, task.batch)
            return self._new(source, there, layer)
        heads = range(self.plan.model.kv_heads) if what == "kv" else range(user.start, user.stop)
        keys, values = self._past(home, there, layer, heads)
        return {"kv": [keys, values], "keys": [keys], "values": [values]}[what]

    def _past(self, home: Cache, there: Cache, layer: int, heads: range) -> tuple[Move, Move]:
        """Past keys and values of some heads."""
        width, capacity, head_dim, sequence = self._shape(layer)
        offset, counts = heads.start * capacity * head_dim * width, (self.plan.workload.batch, len(heads))
        by_head = (sequence, capacity * head_dim * width)
        values = Pieces(per_past=head_dim * width, counts=counts, source_strides=by_head, target_strides=by_head)
        keys = values
        if self.caches.transposed:
            by_dim = (sequence, capacity * width)
            counts = (counts[0], len(heads) * head_dim)
            keys = Pieces(per_past=width, counts=counts, source_strides=by_dim, target_strides=by_dim)
        return Move(home.keys, offset, there.keys, offset, keys), Move(
            home.values, offset, there.values, offset, values
        )

    def _new(self, source: Cache, target: Cache, layer: int) -> list[Move]:
        """The keys and values that this pass adds, of all heads."""
        width, capacity, head_dim, _ = self._shape(layer)
        rows, row = self.plan.workload.batch * self.plan.model.kv_heads, head_dim * width
        strides = (0, capacity * row)
        values = Pieces(0, row, 0, (1, rows), None, row, strides, strides)
        keys = values
        if self.caches.transposed:
            strides = (0, capacity * width)
            keys = Pieces(0, width, 0, (1, rows * head_dim), None, width, strides, strides)
        return [Move(source.keys, 0, target.keys, 0, keys), Move(source.values, 0, target.values, 0, values)]

    def _shape(self, layer: int) -> tuple[int, int, int, int]:
        """Bytes of a value, capacity, head dimension, bytes of a sequence."""
        model, capacity = self.plan.model, self.plan.workload.context
        width = size_of(1, cache_home(self.plan, layer).format)
        return width, capacity, model.head_dim, model.kv_heads * capacity * model.head_dim * width

    def _past_stop(self, index: int, move: Move) -> Move:
        """Where a copy of a cache goes or comes from when it is page-locked on its way."""
        stop = self.stops.by_task.get(index)
        if stop is None:
            return move
        buffer = self.stops.rest.at(stop)
        if stop.owner == index:
            return Move(buffer, move.source_offset, move.target, move.target_offset, move.pieces)
        return Move(move.source, move.source_offset, buffer, move.source_offset, move.pieces)


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
        whole = Pieces(per_token=rows * stride)
        if source.hidden is not None and target.hidden is not None:
            return Move(source.hidden, 0, target.hidden, 0, whole)
        if maker.op in ("scores", "softmax"):
            at, pieces = self._scores(maker, stride)
        else:
            at, pieces = self._columns(maker, region["row_bytes"], stride, whole)
        offset = region["offset"] + at
        return Move(source.workspace, offset, target.workspace, offset, pieces)

    def _columns(self, maker: Use, row_bytes: int, stride: int, whole: Pieces) -> tuple[int, Pieces]:
        """Offset and pieces of the columns that an operation made."""
        model = self.plan.model
        unit = model.heads // model.kv_heads * model.head_dim if maker.op == "wv" else 1
        first, size = F32_BYTES * unit * maker.start, F32_BYTES * unit * (maker.stop - maker.start)
        if maker.op in ("norm1", "norm2", "append", "embedding", "attention") or size == row_bytes:
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
