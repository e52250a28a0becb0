"""Submitting the moves of a pass: copies whose sizes follow from its tokens, reads, expansions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor._kernels import DiskFile, Event, Pool, Queue
from helmsman.executor.devices.parts import Buffer, CopyEngine
from helmsman.schemas.formats import Format, KeptFormat, StoredFormat, size_of

UNLIMITED = 1e15
"""Bytes/s of copies that nothing throttles."""

Submit = Callable[[int, int], None]
"""A function that a pass calls with its tokens and its past."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """counts[0] x counts[1] pieces of `fixed` + `per_token` x tokens + `per_past` x cached tokens bytes each.

    `rows`: which count is per token, `pasts`: which is per cached token. `at_past`: bytes by which every token of the
    past moves either side's offset; strides in bytes, for either count. `reach`: the most cached tokens, the last ones
    of the past (None: all); `skips`: bytes by which each that is left out moves the source's offset and the target's.
    """

    fixed: int = 0
    per_token: int = 0
    per_past: int = 0
    counts: tuple[int, int] = (1, 1)
    rows: int | None = None
    at_past: int = 0
    source_strides: tuple[int, int] = (0, 0)
    target_strides: tuple[int, int] = (0, 0)
    pasts: int | None = None
    reach: int | None = None
    skips: tuple[int, int] = (0, 0)

    def cached(self, past: int) -> int:
        """Return how many tokens of the past are moved."""
        return past if self.reach is None else min(past, self.reach)

    def shifts(self, past: int) -> tuple[int, int]:
        """Return the bytes by which the source's offset and the target's move."""
        skipped = past - self.cached(past)
        return self.at_past * past + self.skips[0] * skipped, self.at_past * past + self.skips[1] * skipped

    def size(self, tokens: int, past: int) -> int:
        """Return the bytes of one piece."""
        return self.fixed + self.per_token * tokens + self.per_past * self.cached(past)

    def times(self, tokens: int, past: int) -> tuple[int, int]:
        """Return how many pieces there are, by both counts."""
        first, second = (
            count * (tokens if self.rows == number else self.cached(past) if self.pasts == number else 1)
            for number, count in enumerate(self.counts)
        )
        return first, second

    def total(self, tokens: int, past: int) -> int:
        """Bytes of all pieces."""
        first, second = self.times(tokens, past)
        return first * second * self.size(tokens, past)


@dataclass(frozen=True, slots=True)
class Move:
    """A copy from one buffer to another."""

    source: Buffer
    source_offset: int
    target: Buffer
    target_offset: int
    pieces: Pieces

    def total(self, tokens: int, past: int) -> int:
        """Bytes it moves."""
        return self.pieces.total(tokens, past)


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes from a file to a buffer."""

    file: DiskFile
    offset: int
    target: Buffer
    target_offset: int
    size: int

    def total(self, tokens: int, past: int) -> int:
        """Bytes it moves."""
        return self.size


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows of a packed table, `rows` x `columns`, to consecutive rows: the `sequences` of `ids` for every token."""

    table: HostBuffer
    format: StoredFormat
    rows: int
    columns: int
    ids: HostBuffer
    sequences: int
    target: Buffer
    target_offset: int

    def total(self, tokens: int, past: int) -> int:
        """Bytes it moves."""
        return self.sequences * tokens * size_of(self.columns, self.format)


@dataclass(frozen=True, slots=True)
class ExpansionMove:
    """4-bit groups to a packed matrix."""

    source: Buffer
    target: Buffer
    format: Format
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The past of some heads, `stored` in rows, to what attention reads, or to plain rows; see `turn_rows`.

    `counts`: sequences, heads, head dimension."""

    source: Buffer
    source_offset: int
    source_strides: tuple[int, int, int]
    target: Buffer
    target_offset: int
    target_strides: tuple[int, int, int]
    counts: tuple[int, int, int]
    stored: KeptFormat
    format: Format
    transposed: bool


@dataclass(frozen=True)
class Signals:
    """The events that a submission waits for and signals, and where its two times go."""

    times: memoryview
    wait: Sequence[Event] = field(default_factory=list)
    done: Event | None = None


def submit_move(engine: CopyEngine, move: Move, signals: Signals) -> Submit:
    """A copy through `engine`."""
    pieces = move.pieces
    rest = (signals.wait, signals.done, signals.times)
    if pieces.counts == (1, 1) and pieces.rows is None and pieces.pasts is None:

        def whole(tokens: int, past: int) -> None:
            size, (source, target) = pieces.size(tokens, past), pieces.shifts(past)
            engine.submit(
                move.target, move.target_offset + target, move.source, move.source_offset + source, size, *rest
            )

        return whole

    def strided(tokens: int, past: int) -> None:
        source, target = pieces.shifts(past)
        engine.submit_strided(
            move.target,
            move.target_offset + target,
            pieces.target_strides,
            move.source,
            move.source_offset + source,
            pieces.source_strides,
            pieces.times(tokens, past),
            pieces.size(tokens, past),
            *rest,
        )

    return strided


def submit_lookup(engine: CopyEngine, lookup: Lookup, signals: Signals) -> Submit:
    """Rows of a table through `engine`."""
    e, table = engine, (lookup.table, lookup.format, lookup.rows, lookup.columns, lookup.ids)
    target, offset, rest = lookup.target, lookup.target_offset, (signals.wait, signals.done, signals.times)

    def submit(tokens: int, past: int) -> None:
        e.submit_lookup(target, offset, *table, lookup.sequences * tokens, *rest)

    return submit


def submit_read(queue: Queue, read: Read, signals: Signals) -> Submit:
    """A read by the queue of a file."""
    arguments = (read.file, read.offset, read.target, read.target_offset, read.size)
    return lambda tokens, past: queue.read(*arguments, signals.times, signals.wait, signals.done)


def submit_expansion(queue: Queue, pool: Pool, expansion: ExpansionMove, signals: Signals) -> Submit:
    """An expansion on a device's threads."""
    e = expansion
    arguments = (pool, e.source, e.target, e.format, e.rows, e.columns)
    return lambda tokens, past: queue.decompress(*arguments, signals.times, signals.wait, signals.done)


def submit_turn(queue: Queue, pool: Pool, turn: Turn, signals: Signals) -> Submit:
    """A turn of all cached tokens on a device's threads."""
    t = turn
    places = (t.source, t.source_offset, t.source_strides, t.target, t.target_offset, t.target_strides)
    how = (t.stored, t.format, t.transposed)
    sequences, heads, width = t.counts

    def submit(tokens: int, past: int) -> None:
        counts = sequences, heads, past, width
        queue.turn_rows(pool, *places, counts, *how, signals.times, signals.wait, signals.done)

    return submit
