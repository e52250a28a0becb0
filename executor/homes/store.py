"""The weights of a plan in their homes: packed once, one tensor at a time, in every memory that keeps a copy."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor._kernels import packed_size
from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.weights.conversion import first_not_finite, pack_rows
from helmsman.executor.weights.opening import Weights
from helmsman.lowering.operation import PANEL
from helmsman.lowering.rules import Slice, homes
from helmsman.lowering.tensor import POSITIONS, Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Plan, Residence

if TYPE_CHECKING:
    from helmsman.executor.homes.storage import Storage


@dataclass(frozen=True)
class PackedRows:
    """Rows start <= r < stop of a weight, packed in `format`, from `offset` on in a buffer or a file."""

    start: int
    stop: int
    columns: int
    format: StoredFormat
    memory: str
    buffer: Buffer | None
    offset: int = 0
    each: int = 1
    """Rows of one: of an expert, where experts are counted."""

    def span(self, first: int, last: int) -> tuple[int, int]:
        """(offset, bytes) of rows first <= r < last, which begin with a panel (`check_executed`)."""
        before = (first - self.start) * self.each
        size = packed_size(self.format, (last - first) * self.each, self.columns)
        return self.offset + offset_of(self.format, before, self.columns), size


@dataclass(frozen=True)
class WeightPiece:
    """Rows start <= r < stop of a weight under one rule, and the copies of them by memory."""

    rule: Residence
    start: int
    stop: int
    copies: Mapping[str, PackedRows]


class WeightLoader:
    """Loads what is asked for, each tensor once per memory: a tied head shares the embedding's table.

    `on_bytes` is told the size of every tensor as it arrives."""

    def __init__(
        self,
        plan: Plan,
        checkpoint: Weights,
        memories: Mapping[str, DeviceMemory],
        storage: "Storage",
        on_bytes: Callable[[int], None],
    ) -> None:
        self._plan = plan
        self._checkpoint = checkpoint
        self._memories = memories
        self._storage = storage
        self._on_bytes = on_bytes
        self._index = {(tensor.name, tensor.layer): tensor for tensor in tensors(plan.model)}
        self._by_op: dict[tuple[str, int | None], list[Tensor]] = {}
        for tensor in tensors(plan.model):
            self._by_op.setdefault((tensor.op, tensor.layer), []).append(tensor)
        self._pieces: dict[Tensor, tuple[WeightPiece, ...]] = {}
        self._kept: dict[tuple[object, ...], PackedRows] = {}
        self._vectors: dict[tuple[Tensor, str], Buffer] = {}
        self._stored: dict[tuple[Tensor, str], int] = {}

    @property
    def tiled(self) -> bool:
        """Whether value heads of delta rules are tiled (`Weights`)."""
        return self._checkpoint.tiled

    def find(self, name: str, layer: int | None) -> Tensor | None:
        """The tensor called `name`, if the model has it."""
        return self._index.get((name, layer))

    def tensor(self, name: str, layer: int | None) -> Tensor:
        """The tensor called `name`."""
        return self._index[name, layer]

    def tensors(self, op: str, layer: int | None) -> list[Tensor]:
        """The tensors that an operation reads."""
        return self._by_op.get((op, layer), [])

    def pieces(self, tensor: Tensor) -> tuple[WeightPiece, ...]:
        """The rows of a matrix in order, loaded."""
        if tensor not in self._pieces:
            self._pieces[tensor] = tuple(self._load(tensor))
        return self._pieces[tensor]

    def here(self, tensor: Tensor, rows: range, memory: str) -> tuple[Buffer, StoredFormat]:
        """Rows of a matrix that live in `memory`, and their format. Raises UsageError when they are kept apart."""
        first = next(piece for piece in self.pieces(tensor) if rows.start < piece.stop).copies[memory]
        if first.buffer is None or rows.stop > first.stop:
            raise UsageError(
                f"rows {rows.start} to {rows.stop} of {place_of(tensor)} are used together and kept apart",
                field="residence",
                value=memory,
                remedy="give rows that one device uses one memory and one format",
            )
        offset, size = first.span(rows.start, rows.stop)
        return first.buffer.part(offset, size), first.format

    def vector(self, tensor: Tensor, memory: str, rows: slice = slice(None)) -> Buffer:
        """A norm, a bias or rows of the table of positions: f32, in `memory`."""
        key = (tensor, memory)
        if key not in self._vectors:
            fmt, values = self._checkpoint.tensor(tensor)
            chosen = self._as_f32(tensor, fmt, values[rows])
            self._vectors[key] = self._memories[memory].place(chosen, place_of(tensor))
            self._on_bytes(values.nbytes)
        return self._vectors[key]

    def stored_vector(self, tensor: Tensor, memory: str) -> int:
        """Where a norm or a bias begins in the file of a storage memory, in f32."""
        key = (tensor, memory)
        if key not in self._stored:
            fmt, values = self._checkpoint.tensor(tensor)
            vector = self._as_f32(tensor, fmt, values[:])
            self._stored[key] = self._storage.write(memory, vector.nbytes, lambda to: _fill(to, vector))
            self._on_bytes(values.nbytes)
        return self._stored[key]

    def positions(self, memory: str) -> Buffer:
        """The learned positions of tokens 0, 1, ...: f32 (context, hidden), in `memory`."""
        position, context = self._plan.model.embedding.positions, self._plan.workload.context
        assert position is not None, "a model with learned positions"
        rows = slice(position.offset, position.offset + context)
        return self.vector(self.tensor(POSITIONS, None), memory, rows)

    def share(self, other: "WeightLoader", tensor: Tensor) -> None:
        """Use a matrix that another loader has, instead of loading it again."""
        self._pieces[tensor] = other.pieces(tensor)

    def rule(self, tensor: Tensor) -> Residence:
        """The rule of a tensor that is not divided."""
        return homes(self._plan, tensor)[0].rule

    def _load(self, tensor: Tensor) -> Iterator[WeightPiece]:
        for run in _runs(homes(self._plan, tensor), self._memories):
            rule = run[0].rule
            start, stop = run[0].start, run[-1].stop
            copies = {m: self._keep(tensor, start, stop, rule.format, m) for m in (rule.memory, *rule.replicas)}
            yield from (WeightPiece(piece.rule, piece.start, piece.stop, copies) for piece in run)

    def _keep(self, tensor: Tensor, start: int, stop: int, fmt: StoredFormat, memory: str) -> PackedRows:
        stored = self._index[tensor.tied_to, None] if tensor.tied_to else tensor
        key = (stored.name, stored.layer, start, stop, fmt, memory)
        if key not in self._kept:
            self._kept[key] = self._placed(stored, start, stop, fmt, memory)
        return self._kept[key]

    def _placed(self, tensor: Tensor, start: int, stop: int, fmt: StoredFormat, memory: str) -> PackedRows:
        source_format, values = self._checkpoint.tensor(tensor)
        each, columns = rows_per_index(tensor), tensor.shape[-1]
        if each % PANEL and tensor.stacked:
            message = f"experts of {each} rows, which are no whole panels of {PANEL}"
            raise UsageError(message, field=place_of(tensor), value=each, remedy="run another model")
        rows = values.part(start * each, stop * each)
        try:
            if memory in self._memories:
                buffer = self._memories[memory].keep(rows, source_format, fmt, columns, place_of(tensor))
                kept = PackedRows(start, stop, columns, fmt, memory, buffer, each=each)
            else:

                def fill(target: HostBuffer) -> None:
                    pack_rows(rows, source_format, target, fmt, columns)

                size = packed_size(fmt, len(rows), columns)
                offset = self._storage.write(memory, size, fill)
                kept = PackedRows(start, stop, columns, fmt, memory, None, offset, each)
        except FloatingPointError:
            row = start * each + first_not_finite(rows, source_format, fmt, columns)
            raise self._not_finite(tensor, fmt, row) from None
        self._on_bytes(rows.nbytes)
        return kept

    def _as_f32(self, tensor: Tensor, fmt: str, values: NDArray[Any]) -> NDArray[np.float32]:
        """Convert values of a norm, a bias or a table to f32. Raises BadInputError where one is not finite."""
        converted = self._checkpoint.computed(tensor, as_f32(fmt, values))
        if not np.isfinite(converted).all():
            raise self._not_finite(tensor, "f32")
        return converted

    def _not_finite(self, tensor: Tensor, fmt: str, row: int = 0) -> BadInputError:
        """Make the error that names the file and the tensor with the row whose values are not finite in `fmt`."""
        file, name = self._checkpoint.place(tensor, row)
        message = f"values that are not finite, or not in {fmt}: every token would be nonsense"
        remedy = "download the checkpoint again, or keep it in a format of more range (bf16, f32)"
        return BadInputError(message, file=file, field=name, remedy=remedy)


def _fill(target: HostBuffer, values: NDArray[np.float32]) -> None:
    view(target, np.float32)[:] = values.ravel()


def _runs(pieces: Sequence[Slice[Residence]], memories: Container[str]) -> Iterator[list[Slice[Residence]]]:
    """Neighbours that are kept alike in memory are kept together, whatever the path by which they leave."""
    run: list[Slice[Residence]] = []
    for piece in pieces:
        if run and piece.rule.memory in memories and _alike(run[-1].rule, piece.rule):
            run.append(piece)
            continue
        if run:
            yield run
        run = [piece]
    yield run


def _alike(one: Residence, other: Residence) -> bool:
    return (one.memory, one.replicas, one.format) == (other.memory, other.replicas, other.format)


def as_f32(fmt: str, values: NDArray[Any]) -> NDArray[np.float32]:
    """Stored values, bf16 as uint16, in f32."""
    if fmt == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def offset_of(fmt: StoredFormat, row: int, columns: int) -> int:
    """Where a row of a packed matrix begins, in bytes; rows in steps of a panel."""
    return packed_size(fmt, row, columns) if row else 0


def rows_per_index(tensor: Tensor) -> int:
    """Return the rows of what its first dimension counts: those of an expert, or one."""
    return prod(tensor.shape[1:-1])


def place_of(tensor: Tensor) -> str:
    """The tensor as people call it."""
    return tensor.name if tensor.layer is None else f"{tensor.name} of block {tensor.layer}"
