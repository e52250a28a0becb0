"""The time that the accelerator takes to expand 4-bit groups that have arrived, while more arrive."""

import time
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from helmsman.executor._kernels import Buffer, Pool, Queue, packed_size
from helmsman.executor.profile.bench import MeasurementBuffers
from helmsman.executor.profile.buffers import rotation
from helmsman.executor.profile.layer import Seconds, matrices, matrix_shape
from helmsman.executor.profile.layer_times import TIME_LIMIT_S, restated
from helmsman.executor.profile.layer_traffic import SETS, LayerTraffic
from helmsman.executor.profile.question import LayerQuestion
from helmsman.schemas.formats import Format, is_plain, rows_size, size_of

ROUNDS = (4, 16)
PASSES = 5
"""A sample is the mean of so many: the copy engine, on the same core, delays some of them a lot."""


@dataclass
class ExpansionTimes:
    """Seconds by operation, restated as those of other operations; `rates`: bytes/s read and written, by round;
    `disturbed`: the share of the time that others took."""

    seconds: Seconds = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    disturbed: float = 0.0


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix of an operation, expanded to where it arrives uncompressed."""

    op: str
    format: Format
    rows: int
    columns: int
    target: int

    @property
    def stored(self) -> int:
        return packed_size("q4", self.rows, self.columns)

    @property
    def expanded(self) -> int:
        return packed_size(self.format, self.rows, self.columns)

    def submit(self, queue: Queue, pool: Pool, source: Buffer, target: Buffer, times: memoryview) -> None:
        ready = target.part(self.target, self.expanded)
        queue.decompress(pool, source, ready, self.format, self.rows, self.columns, times)


@dataclass(frozen=True, slots=True)
class _Past:
    """The past keys (`lines`: by dimension) or values of all heads of a batch, turned as the executor turns them."""

    op: str
    question: LayerQuestion
    lines: bool
    target: int

    @property
    def _rows(self) -> int:
        return self.question.batch * self.question.model.dense.kv_heads * (self.question.context - 1)

    @property
    def stored(self) -> int:
        return rows_size(self._rows, self.question.model.dense.head_dim, "q4")

    @property
    def expanded(self) -> int:
        return rows_size(self._rows, self.question.model.dense.head_dim, self.question.kv_format)

    def submit(self, queue: Queue, pool: Pool, source: Buffer, target: Buffer, times: memoryview) -> None:
        q, heads, width = self.question, self.question.model.dense.kv_heads, self.question.model.dense.head_dim
        past, value, row = q.context - 1, size_of(1, q.kv_format), rows_size(1, width, "q4")
        head = q.capacity * width * value
        to = heads * head, head, q.capacity * value if self.lines else width * value
        came = heads * past * row, past * row, row
        counts = q.batch, heads, past, width
        queue.turn_rows(pool, source, 0, came, target, self.target, to, counts, "q4", q.kv_format, self.lines, times)


_Expansion = _Matrix | _Past


def measure_expansion(
    pool: Pool, cpu: int, question: LayerQuestion, bench: MeasurementBuffers, traffic: LayerTraffic, recorded: float
) -> ExpansionTimes:
    """Expand all of a layer round by round into the sets in which loads arrive, on a queue of CPU `cpu`."""
    work = _expansions(question, traffic)
    queue, expansion_times = Queue(cpu), ExpansionTimes()
    if not work:
        return expansion_times
    turns = cycle(rotation(sum(_aligned(expansion.stored) for expansion in work), bench.cache_bytes))
    began, (least, most) = time.monotonic(), ROUNDS
    for number in range(-1, most):
        if number >= least and time.monotonic() - began > TIME_LIMIT_S:
            break
        before, pairs = bench.read(pool), [(next(turns), traffic.sets[turn % SETS]) for turn in range(PASSES)]
        alone = _expand(queue, pool, work, pairs)
        with traffic.flowing():
            busy = _expand(queue, pool, work, pairs)
        read = (before + bench.read(pool)) / 2
        if number >= 0:
            _keep(expansion_times, work, alone, busy, read, recorded)
    return expansion_times


def _keep(
    expansion_times: ExpansionTimes,
    work: list[_Expansion],
    alone: list[float],
    busy: list[float],
    read: float,
    recorded: float,
) -> None:
    total = 0.0
    for expansion, quick, seconds in zip(work, alone, busy, strict=True):
        at_record = seconds * restated(expansion.stored + expansion.expanded, quick, read, recorded)
        expansion_times.seconds.setdefault(expansion.op, []).append(at_record)
        total += at_record
    expansion_times.rates.append(sum(expansion.stored + expansion.expanded for expansion in work) / total)


def _expansions(question: LayerQuestion, traffic: LayerTraffic) -> list[_Expansion]:
    """The matrices, unless they are quantised already, and the past of keys and values."""
    fmt, expansions = question.format, list[_Expansion]()
    if is_plain(fmt):
        for tensor in matrices(question):
            expansions.append(_Matrix(tensor.op, fmt, *matrix_shape(tensor), traffic.arrival(tensor.name)))
    if question.context > 1:
        expansions.append(_Past("scores", question, True, traffic.arrival("keys")))
        expansions.append(_Past("wv", question, False, traffic.arrival("values")))
    return expansions


def _expand(queue: Queue, pool: Pool, work: list[_Expansion], pairs: list[tuple[Buffer, Buffer]]) -> list[float]:
    """Mean seconds of each, from each source to its target."""
    times = np.zeros((len(pairs), len(work), 2))
    for (source, target), rows in zip(pairs, times, strict=True):
        at = 0
        for expansion, row in zip(work, rows, strict=True):
            expansion.submit(queue, pool, source.part(at, expansion.stored), target, row.data)
            at += _aligned(expansion.stored)
    queue.synchronize()
    return [float(seconds) for seconds in (times[:, :, 1] - times[:, :, 0]).mean(axis=0)]


def _aligned(size: int) -> int:
    return -(-size // 64) * 64
