"""The moves of keys and values: past and new positions of heads, as they are kept or as they are read."""

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from helmsman.executor.cache.kv import Caches, Heads, Part, PlacedCache, kv_format, layer_cache
from helmsman.executor.devices.move_calls import Move, Pieces, Turn
from helmsman.executor.passes.chains import Stops
from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass, carry_alike
from helmsman.lowering.bodies.attention import NEW_KV
from helmsman.lowering.caches import CACHED, CachePiece, pieces_of
from helmsman.lowering.layer_cache import read_cache
from helmsman.lowering.rules import Cached
from helmsman.schemas.formats import is_plain, rows_size
from helmsman.schemas.plan import Path, Plan
from helmsman.schemas.storage import in_blocks

Strides = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Strides:
    """Bytes from sequence to sequence, head to head, token to token and, `lines` only, dimension to dimension."""

    sequence: int
    head: int
    token: int
    line: int
    lines: bool


@dataclass(frozen=True)
class CacheMoves:
    """The moves of the keys and values of one pass."""

    plan: Plan
    phase_pass: PhasePass
    caches: Caches
    stops: Stops

    def moves(self, index: int) -> list[Move]:
        """Past keys or values on their way to where they are used, or new ones on their way there or home."""
        return self._through(index, list(self._direct(index)))

    def size(self, index: int) -> int:
        """Bytes that a task needs where a cache stops on its way: images of the buffers it comes from."""
        return sum(in_blocks(move.source.size) for move in self._direct(index))

    def turns(self, index: int) -> list[Turn]:
        """Return the moves with which a task expands 4-bit groups, or turns rows to what attention reads."""
        task, use = self.phase_pass.tasks[index], self.phase_pass.uses[self.phase_pass.user[index]]
        cache = self.caches.at(task.memories[0], task.layer or 0, task.batch)
        expands = task.kind == "decompress"
        brought = {
            (self.stops.ends(self.phase_pass, d)[0], self.phase_pass.tasks[d].path) for d in self._bringing(index)
        }
        result = []
        for piece, heads in self._pieces(use):
            if expands and (piece.rule.format != "q4" or not _is_of(piece, brought, cache.memory)):
                continue
            kept, plain = cache.kept[piece.what], cache.plain[piece.what]
            source = _holding(plain if plain and not expands and piece.rule.format == "q4" else kept, heads)
            target = _holding(plain if plain and expands else cache.read[piece.what], heads)
            result.append(self._turn(task.layer or 0, piece.what, source, target, heads))
        return result

    def _bringing(self, index: int) -> Iterator[int]:
        """The transfers after which a task expands what they have brought."""
        for dep in self.phase_pass.tasks[index].deps:
            brought = self.phase_pass.tasks[dep]
            if brought.kind == "transfer" and carry_alike(brought, self.phase_pass.tasks[index]):
                yield dep

    def _direct(self, index: int) -> Iterator[Move]:
        """The moves of a task, or of a chain of them, as if nothing stopped on its way."""
        task = self.phase_pass.tasks[index]
        origin, final = self.stops.ends(self.phase_pass, index)
        layer = task.layer or 0
        source, target = (self.caches.at(memory, layer, task.batch) for memory in (origin, final))
        if task.operation == NEW_KV:
            for piece in pieces_of(self.plan, layer):
                if not _lives_plainly(piece, target, final):
                    for one, other, heads in _common(source.read[piece.what], target.read[piece.what], piece):
                        yield self._new(piece.what, one, other, heads)
        elif task.payload == "new cache entries":
            for piece in pieces_of(self.plan, layer):
                if (piece.rule.memory, piece.rule.format) == (final, task.format):
                    yield self._stored(piece, source, target)
        else:
            path = "pin-on-transfer" if task.kind == "pin" else task.path
            for piece, heads in self._pieces(self.phase_pass.uses[self.phase_pass.user[index]]):
                if (piece.rule.memory, piece.rule.format, piece.rule.path) == (origin, task.format, path):
                    yield self._past(layer, piece.what, *_alike(piece, heads, source, target), heads)

    def _pieces(self, use: DeviceUse) -> Iterator[tuple[CachePiece, range]]:
        """The pieces of a block's cache that an operation reads, and which of their heads."""
        all_heads = use.op == "attention"
        for piece in pieces_of(self.plan, use.layer or 0):
            start, stop = (0, layer_cache(self.plan, use.layer or 0).heads) if all_heads else (use.start, use.stop)
            heads = range(max(start, piece.start), min(stop, piece.stop))
            if piece.what in CACHED[use.op] and heads:
                yield piece, heads

    def _steps(self, what: Cached, heads: Heads) -> _Strides:
        """How a buffer is laid out."""
        count, capacity, width = len(heads.room), self.plan.workload.context, heads.width
        row = rows_size(1, width, heads.format)
        if heads.turned and self.caches.by_tokens:
            return _Strides(capacity * count * row, row, count * row, 0, lines=False)
        if not heads.turned and what == "keys" and self.caches.transposed:
            value = row // width
            return _Strides(count * capacity * row, capacity * row, value, capacity * value, lines=True)
        return _Strides(count * capacity * row, capacity * row, row, 0, lines=False)

    def _past(self, layer: int, what: Cached, source: Heads, target: Heads, heads: range) -> Move:
        """Return the move of the cached tokens of some heads that a block reads: those in its window."""
        one, other = self._steps(what, source), self._steps(what, target)
        counts, strides = self._counted(one, other, len(heads), source.width)
        pieces = Pieces(per_past=one.token, counts=counts, source_strides=strides[0], target_strides=strides[1])
        if one.head < one.token and len(heads) * one.head < one.token:
            strides = (one.sequence, one.token), (other.sequence, other.token)
            size = len(heads) * one.head
            pieces = Pieces(size, 0, 0, counts, source_strides=strides[0], target_strides=strides[1], pasts=1)
        cache = read_cache(self.plan.model, layer)
        if cache is not None and cache.reach is not None:
            pieces = replace(pieces, reach=cache.reach - 1, skips=(one.token, other.token))
        return _move(source, one, target, other, heads, pieces)

    def _new(self, what: Cached, source: Heads, target: Heads, heads: range) -> Move:
        """The tokens that this pass adds, of some heads."""
        one, other = self._steps(what, source), self._steps(what, target)
        counts, (from_strides, to_strides) = self._counted(one, other, len(heads), source.width)
        pieces = Pieces(0, one.token, 0, counts, None, one.token, from_strides, to_strides)
        return _move(source, one, target, other, heads, pieces)

    def _counted(
        self, one: _Strides, other: _Strides, heads: int, width: int
    ) -> tuple[tuple[int, int], tuple[Strides, Strides]]:
        """Return how many pieces run through the tokens of heads `width` values wide, and how far they are apart on
        either side."""
        batch = self.plan.workload.batch
        if one.lines:
            count = heads * width
            return (batch, count), ((one.sequence, one.line), (other.sequence, other.line))
        if one.head < one.token:
            return (batch, 1), ((one.sequence, 0), (other.sequence, 0))
        return (batch, heads), ((one.sequence, one.head), (other.sequence, other.head))

    def _stored(self, piece: CachePiece, source: PlacedCache, target: PlacedCache) -> Move:
        """New tokens of a piece to where it lives."""
        heads = range(piece.start, piece.stop)
        return self._new(piece.what, *_alike(piece, heads, source, target), heads)

    def _turn(self, layer: int, what: Cached, source: Heads, target: Heads, heads: range) -> Turn:
        one, other = self._steps(what, source), self._steps(what, target)
        fmt = kv_format(self.plan, [layer])
        assert is_plain(fmt)
        return Turn(
            source.buffer,
            (heads.start - source.room.start) * one.head,
            (one.sequence, one.head, one.token),
            target.buffer,
            (heads.start - target.room.start) * other.head,
            (other.sequence, other.head, other.line if other.lines else other.token),
            (self.plan.workload.batch, len(heads), source.width),
            source.format,
            fmt,
            other.lines,
        )

    def _through(self, index: int, moves: list[Move]) -> list[Move]:
        """Moves as this task makes them: to a stop, from it, or all the way."""
        stop = self.stops.by_task.get(index)
        if stop is None:
            return moves
        buffer, at, result = self.stops.rest.at(stop), 0, []
        for move in moves:
            there, strides = at + move.source_offset, move.pieces.source_strides
            if stop.owner == index:
                result.append(replace(move, source=buffer, source_offset=there))
            else:
                pieces = replace(move.pieces, target_strides=strides)
                result.append(replace(move, target=buffer, target_offset=there, pieces=pieces))
            at += in_blocks(move.source.size)
        return result


def _is_of(piece: CachePiece, brought: Container[tuple[str, Path]], memory: str) -> bool:
    """Whether a piece is among what transfers have brought, or lives in `memory` where none has."""
    return (piece.rule.memory, piece.rule.path) in brought if brought else piece.rule.memory == memory


def _lives_plainly(piece: CachePiece, cache: PlacedCache, memory: str) -> bool:
    """Whether what is new of a piece is sent home to the very buffer in `memory` that attention reads, perhaps already:
    so nothing else may write to it."""
    kept = cache.kept.get(piece.what, ())
    return piece.rule.memory == memory and not _holds(kept, range(piece.start, piece.stop))


def _alike(piece: CachePiece, heads: range, source: PlacedCache, target: PlacedCache) -> tuple[Heads, Heads]:
    """A piece in two memories, in the form in which it is kept."""
    if piece.what in source.kept and _holds(source.kept[piece.what], heads):
        return _holding(source.kept[piece.what], heads), _holding(target.kept[piece.what], heads)
    return _holding(source.read[piece.what], heads), _holding(target.read[piece.what], heads)


def _holds(part: Part, heads: range) -> bool:
    return any(piece.start <= heads.start and heads.stop <= piece.stop for piece in part)


def _holding(part: Part, heads: range) -> Heads:
    return next(piece for piece in part if piece.start <= heads.start and heads.stop <= piece.stop)


def _common(one: Part, other: Part, piece: CachePiece) -> Iterator[tuple[Heads, Heads, range]]:
    """Heads of a piece that are in both."""
    for first in one:
        for second in other:
            start, stop = max(first.start, second.start, piece.start), min(first.stop, second.stop, piece.stop)
            heads = range(start, stop)
            if heads:
                yield first, second, heads


def _move(source: Heads, one: _Strides, target: Heads, other: _Strides, heads: range, pieces: Pieces) -> Move:
    return Move(
        source.buffer,
        (heads.start - source.room.start) * one.head,
        target.buffer,
        (heads.start - target.room.start) * other.head,
        pieces,
    )
