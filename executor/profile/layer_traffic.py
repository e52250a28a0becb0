"""The link at work: everything a layer brings to the accelerator, over and over, in the order of use."""

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import cycle
from threading import Event
from typing import Literal

from helmsman.executor._kernels import CopyEngine, packed_size
from helmsman.executor.devices.memory import arena_beside
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.profile.copies import feeding
from helmsman.executor.profile.layer import Layers, Seconds, matrices, matrix_shape, vectors
from helmsman.schemas.formats import StoredFormat, is_plain, rows_size, size_of
from helmsman.schemas.hardware import Link
from helmsman.schemas.storage import in_blocks

AHEAD_S = 20e-3
"""Seconds of copies that wait at any time: whoever feeds the link must not be late, nor wake too often."""
SETS = 2
"""Copies arrive in this many sets of buffers in turn, as streamed weights do."""

LARGE = 64 << 10
"""Bytes of copies whose latency says little about their rate."""

Column = Literal["transfer", "transfer_q4"]


@dataclass(frozen=True, slots=True)
class OperationTraffic:
    """The traffic of operation `op`, or a part of it: counts[0] x counts[1] pieces of `size` bytes of `name`.

    `source`: the buffer of a layer it is read from; `target`: where it arrives in a set, with `room` bytes or as many
    as it takes; `strides`: bytes between pieces, on both sides."""

    op: str
    column: Column
    name: str
    source: str
    size: int
    counts: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (0, 0)
    room: int = 0
    target: int = 0

    @property
    def bytes(self) -> int:
        """Bytes that cross the link."""
        return self.size * self.counts[0] * self.counts[1]

    @property
    def reach(self) -> int:
        """Bytes from the beginning of the first piece to the end of the last."""
        return self.size + sum((count - 1) * stride for count, stride in zip(self.counts, self.strides, strict=True))


class LayerTraffic:
    """The loads of a layer over `engine`; their seconds by column and operation are added up round by round, until they
    are taken.

    A round brings the layer uncompressed, then in 4-bit groups. Sources are the copies of `layers` in turn."""

    def __init__(self, layers: Layers, engine: CopyEngine, link: Link) -> None:
        self._engine = engine
        self._layers = layers
        self._rate, self._latency = link.bandwidth.value, link.latency.value
        self.loads = list(_loads(layers))
        size = max(load.target + _blocks(load) for load in self.loads)
        arena = arena_beside(SETS * size)
        self.sets = [arena.alloc(size, "arrivals") for _ in range(SETS)]
        self._last = {(load.column, load.op): load for load in self.loads}
        self._rounds = cycle(range(layers.count * SETS))
        self._next = self._round()
        self._open: dict[tuple[Column, str], float] = {}
        self.seconds = _nothing()
        self._rates: list[float] = []

    @property
    def rounds(self) -> int:
        """How often the rarest load was measured since all was taken."""
        columns = self.seconds["transfer"], self.seconds["transfer_q4"]
        return min((len(times) for column in columns for times in column.values()), default=0)

    def take(self) -> tuple[dict[Column, Seconds], list[float]]:
        """Seconds by column and operation, and bytes/s of the large copies, since this was last asked."""
        taken = self.seconds, self._rates
        self.seconds, self._rates = _nothing(), []
        return taken

    def arrival(self, name: str) -> int:
        """Where a matrix, keys or values arrive uncompressed, in bytes from the beginning of a set."""
        return next(load.target for load in self.loads if (load.column, load.name) == ("transfer", name))

    def flowing(self) -> AbstractContextManager[None]:
        """While inside, the engine's queue never runs dry; the engine rests again afterwards."""
        return feeding(self._feed)

    def _feed(self, stop: Event) -> None:
        """Wakes when half of what was submitted ahead is done; one copy at least is always waiting."""
        queue = deque[tuple[OperationTraffic, int]]()
        ahead = 0.0
        while queue or not stop.is_set():
            while not stop.is_set() and (ahead < AHEAD_S or len(queue) < 2):
                load, number = next(self._next)
                queue.append((load, self._submit(load, number)))
                ahead += self._expected(load)
            load, ticket = queue.popleft()
            self._finish(load, ticket)
            ahead -= self._expected(load)
            while ahead > AHEAD_S / 2 and len(queue) > 1:
                load, ticket = queue.popleft()
                self._finish(load, ticket)
                ahead -= self._expected(load)

    def _finish(self, load: OperationTraffic, ticket: int) -> None:
        start, end = self._engine.wait(ticket)
        key = load.column, load.op
        self._open[key] = self._open.get(key, 0.0) + end - start
        if load.bytes >= LARGE and end - start > self._latency:
            self._rates.append(load.bytes / (end - start - self._latency))
        if load is self._last[key]:
            self.seconds[load.column].setdefault(load.op, []).append(self._open.pop(key))

    def _round(self) -> Iterator[tuple[OperationTraffic, int]]:
        for number in self._rounds:
            for load in self.loads:
                yield load, number

    def _submit(self, load: OperationTraffic, number: int) -> int:
        source = self._layers.blocks[number % self._layers.count][load.source]
        target = self.sets[number % SETS]
        if load.counts == (1, 1):
            return self._engine.submit(target, load.target, source, 0, load.size)
        return self._engine.submit_strided(
            target, load.target, load.strides, source, 0, load.strides, load.counts, load.size
        )

    def _expected(self, load: OperationTraffic) -> float:
        return self._latency + load.bytes / self._rate


def _nothing() -> dict[Column, Seconds]:
    """No load was measured."""
    return {"transfer": {}, "transfer_q4": {}}


def _loads(layers: Layers) -> Iterator[OperationTraffic]:
    """Uncompressed, then compressed, in the order of the operations; targets one after the other."""
    question = layers.question
    order = [op.name for op in question.operations]
    for column in ("transfer", "transfer_q4"):
        loads = sorted((*_weights(layers, column), *_cache(layers, column)), key=lambda load: order.index(load.op))
        at = 0
        for load in loads:
            yield replace(load, target=at)
            at += _blocks(load)


def _blocks(load: OperationTraffic) -> int:
    return in_blocks(max(load.room, load.reach))


def _weights(layers: Layers, column: Column) -> Iterator[OperationTraffic]:
    """Matrices packed; norms and biases as they are, from the first bytes of any matrix. What is quantised does not
    come in 4-bit groups."""
    question = layers.question
    fmt: StoredFormat = question.format if column == "transfer" else "q4"
    if column == "transfer_q4" and not is_plain(question.format):
        return
    for tensor in matrices(question):
        yield OperationTraffic(tensor.op, column, tensor.name, tensor.name, packed_size(fmt, *matrix_shape(tensor)))
    for tensor in vectors(question):
        yield OperationTraffic(tensor.op, column, tensor.name, "down.weight", F32_BYTES * tensor.elements)


def _cache(layers: Layers, column: Column) -> Iterator[OperationTraffic]:
    """The tokens of the past out of caches with room for more."""
    question, shape = layers.question, layers.question.model.dense
    past, heads, width = question.context - 1, question.batch * shape.kv_heads, shape.head_dim
    if past == 0:
        return
    if column == "transfer_q4":
        row = rows_size(1, width, "q4")
        for op, name in (("scores", "keys"), ("wv", "values")):
            yield OperationTraffic(op, column, name, name, past * row, (heads, 1), (question.capacity * row, 0))
        return
    value = size_of(1, question.kv_format)
    row, head = question.capacity * value, question.capacity * width * value
    room = packed_size(question.kv_format, heads * width, past)
    yield OperationTraffic("scores", column, "keys", "keys", past * value, (heads, width), (head, row), room)
    yield OperationTraffic("wv", column, "values", "values", past * width * value, (heads, 1), (head, 0), room)
