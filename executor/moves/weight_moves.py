"""The moves of weights: from homes to the slots of their uses, and from 4-bit groups to values."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from helmsman.executor._kernels import packed_size
from helmsman.executor.devices.move_calls import ExpansionMove, Move, Pieces, Read
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.homes.staging import Slot, Staging
from helmsman.executor.homes.storage import Storage
from helmsman.executor.homes.store import WeightLoader, WeightPiece, offset_of, rows_per_index
from helmsman.executor.passes.chains import Stops
from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass, carry_alike
from helmsman.lowering.rules import homes
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import is_plain
from helmsman.schemas.plan import Plan
from helmsman.schemas.storage import BLOCK, STORAGE, in_blocks


@dataclass(frozen=True, slots=True)
class _Source:
    """Bytes at home: in a buffer, or in the file of a storage memory."""

    buffer: Buffer | None
    memory: str
    offset: int


@dataclass(frozen=True, slots=True)
class _Segment:
    """Bytes from a home to where they are wanted, in one piece."""

    source: _Source
    target: Buffer
    target_offset: int
    size: int


@dataclass(frozen=True)
class WeightMoves:
    """The moves of the weights of one pass."""

    plan: Plan
    phase_pass: PhasePass
    staging: Staging
    store: WeightLoader
    storage: Storage
    stops: Stops

    def moves(self, index: int) -> list[Move | Read]:
        """Return the moves of a transfer, or of a copy to page-locked memory, of weights."""
        return [self._segment_move(segment) for segment in self._through(index, list(self._segments(index)))]

    def size(self, index: int) -> int:
        """Bytes that a task needs where its weights stop on their way."""
        return sum(in_blocks(segment.size) for segment in self._segments(index))

    def expansions(self, index: int) -> list[ExpansionMove]:
        """Return the moves with which a task expands 4-bit groups."""
        use = self.phase_pass.uses[self.phase_pass.user[index]]
        return [expansion for tensor, _ in self.staging.of(use) for expansion in self._expanded(use, tensor, index)]

    def _segments(self, index: int) -> Iterator[_Segment]:
        task, use = self.phase_pass.tasks[index], self.phase_pass.uses[self.phase_pass.user[index]]
        (home, _), path = (
            self.stops.ends(self.phase_pass, index),
            "pin-on-transfer" if task.kind == "pin" else task.path,
        )
        for tensor, slot in self.staging.of(use):
            if not tensor.packed:
                rules = (kept.rule for kept in homes(self.plan, tensor))
                if any((rule.memory, rule.format, rule.path) == (home, task.format, path) for rule in rules):
                    source = self._vector(tensor, home, slot.rows.start * prod(tensor.shape[1:]))
                    yield _Segment(source, slot.ready.buffer, slot.ready.offset, slot.ready.size)
                continue
            for piece, first, last in _overlaps(self.store.pieces(tensor), slot.rows):
                if home in piece.copies and (piece.rule.format, piece.rule.path) == (task.format, path):
                    yield _segment(piece, home, slot, first, last, slot.rows.start)

    def _vector(self, tensor: Tensor, home: str, first: int) -> _Source:
        """Where a norm or a bias is at home, from value `first` on."""
        if self.plan.hardware.memory(home).kind == STORAGE:
            return _Source(None, home, self.store.stored_vector(tensor, home) + F32_BYTES * first)
        return _Source(self.store.vector(tensor, home), home, F32_BYTES * first)

    def _through(self, index: int, segments: list[_Segment]) -> list[_Segment]:
        """Segments as this task moves them: to a stop, from it, or all the way."""
        stop = self.stops.by_task.get(index)
        if stop is None or not segments:
            return segments
        buffer = self.stops.rest.at(stop)
        offsets = [0, *accumulate(in_blocks(segment.size) for segment in segments)]
        if stop.owner == index:
            sources = (_Source(buffer, stop.memory, offset) for offset in offsets)
            return [_Segment(s, e.target, e.target_offset, e.size) for s, e in zip(sources, segments, strict=False)]
        return [_Segment(e.source, buffer, at, e.size) for e, at in zip(segments, offsets, strict=False)]

    def _segment_move(self, segment: _Segment) -> Move | Read:
        source = segment.source
        if source.buffer is None:
            if source.offset % BLOCK:
                raise UsageError(
                    f"a part of a weight on storage begins at byte {source.offset}, within a block",
                    field="residence",
                    value=source.memory,
                    remedy="read whole weights from storage, or give their parts rules of their own",
                )
            file = self.storage.file(source.memory)
            return Read(file, source.offset, segment.target, segment.target_offset, segment.size)
        pieces = Pieces(fixed=segment.size)
        return Move(source.buffer, source.offset, segment.target, segment.target_offset, pieces)

    def _expanded(self, use: DeviceUse, tensor: Tensor, index: int) -> Iterator[ExpansionMove]:
        slot = self.staging.slot(use, tensor)
        if slot is None or not tensor.packed:
            return
        memory, rows = self.plan.hardware.device(use.device).memory, slot.rows
        paths = {
            self.phase_pass.tasks[dep].path for dep in self.phase_pass.tasks[index].deps if self._brings(dep, index)
        }
        for piece, first, last in _overlaps(self.store.pieces(tensor), rows):
            here = memory in piece.copies
            wanted = not paths if here else piece.rule.path in paths
            if not piece.rule.expands or not wanted:
                continue
            columns, height = tensor.shape[-1], rows_per_index(tensor)
            before, count = (first - rows.start) * height, (last - first) * height
            if here:
                kept = piece.copies[memory]
                source = _part(kept.buffer, *kept.span(first, last))
            else:
                assert slot.arrival is not None
                at, size = offset_of("q4", before, columns), packed_size("q4", count, columns)
                source = _part(slot.arrival.buffer, slot.arrival.offset + at, size)
            at, size = offset_of(slot.format, before, columns), packed_size(slot.format, count, columns)
            target = _part(slot.ready.buffer, slot.ready.offset + at, size)
            assert is_plain(slot.format)
            yield ExpansionMove(source, target, slot.format, count, columns)

    def _brings(self, dep: int, index: int) -> bool:
        """Whether a task brings the groups that another expands; with barriers it waits for more."""
        one, other = self.phase_pass.tasks[dep], self.phase_pass.tasks[index]
        alike = carry_alike(one, other) and (one.layer, one.rows, one.piece) == (other.layer, other.rows, other.piece)
        return alike and one.kind == "transfer"


def _segment(piece: WeightPiece, home: str, slot: Slot, first: int, last: int, base: int) -> _Segment:
    """Rows first <= r < last from one of their copies to a slot that begins with row `base`."""
    kept, fmt = piece.copies[home], piece.rule.format
    target = slot.arrival if piece.rule.expands and slot.arrival else slot.ready
    at = target.offset + offset_of(fmt, (first - base) * kept.each, kept.columns)
    offset, size = kept.span(first, last)
    start, stop = _share(piece, home, size)
    return _Segment(_Source(kept.buffer, home, offset + start), target.buffer, at + start, stop - start)


def _overlaps(pieces: tuple[WeightPiece, ...], rows: range) -> Iterator[tuple[WeightPiece, int, int]]:
    for piece in pieces:
        first, last = max(piece.start, rows.start), min(piece.stop, rows.stop)
        if first < last:
            yield piece, first, last


def _share(piece: WeightPiece, home: str, size: int) -> tuple[int, int]:
    """The bytes [start, stop) that one of several copies serves, in whole blocks of storage."""
    if not piece.rule.stripes:
        return 0, size
    places = (piece.rule.memory, *piece.rule.replicas)
    ends = [round(size * share) // BLOCK * BLOCK for share in accumulate(piece.rule.stripes)]
    number = places.index(home)
    return (ends[number - 1] if number else 0), (size if number == len(places) - 1 else ends[number])


def _part(buffer: Buffer | None, offset: int, size: int) -> Buffer:
    assert buffer is not None
    return buffer.part(offset, size)
