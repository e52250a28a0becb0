"""A device made of processors: the host, or a loopback accelerator.

A loopback accelerator computes with the host's kernels, but on CPUs of its own, from memory of its own, behind
copies that take as long as its link's record says; so splits, transfers and running out of memory are real on any
machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Buffer, Cohort, Event, Pool, Queue, ServingPass, Stage, StreamedWeights
from helmsman.executor.devices import parts
from helmsman.executor.devices.iterations import Driver, ExpertLookup, PassWeights
from helmsman.executor.devices.memory import BoundedMemory, view
from helmsman.executor.devices.move_calls import ExpansionMove, Signals, Submit, Turn, submit_expansion, submit_turn
from helmsman.executor.devices.probe import product_rate, read_rate
from helmsman.executor.devices.specs import AnySpec
from helmsman.executor.devices.stage_turns import Numbers
from helmsman.executor.devices.value_sizes import INDEX_BYTES
from helmsman.schemas.formats import Precision, StoredFormat


@dataclass(frozen=True)
class NativeValues:
    """Values of a stage, which are read and written in the workspace itself."""

    stage: Stage

    def read(self, region: parts.Region, rows: int) -> Numbers:
        """Return a view."""
        first, width = (region[key] // INDEX_BYTES for key in ("offset", "stride"))
        values = view(self.stage.workspace, np.int32)[first : first + rows * width]
        return values.reshape(rows, width)

    def write(self, region: parts.Region, numbers: Numbers) -> None:
        """Do nothing: `numbers` are the value's own."""


@dataclass(frozen=True)
class NativeTurns(NativeValues):
    """Turns of `queue`."""

    queue: Queue

    def call(self, function: Callable[[], object], done: Event | None) -> None:
        """Submit a function."""
        self.queue.call(function, None, (), done)

    def run(self, hidden: parts.Buffer | None, tokens: int, past: int, ops: range, chunk: range) -> None:
        """Run operations in this thread's turn."""
        at, stamps = None if hidden is None else parts.of_kind(hidden, Buffer), np.zeros(len(ops) + 1)
        self.stage.run(at, at, tokens, past, stamps.data, ops.start, ops.stop, chunk.start, chunk.stop)


class CpuDevice:
    """Computes on `cpus` from `memory`, one thread on each."""

    def __init__(self, name: str, memory: BoundedMemory, cpus: Sequence[int]) -> None:
        self.name = name
        self.memory = memory
        self.cpus = tuple(cpus)
        self.pool = Pool(self.cpus)

    def open_queue(self) -> Queue:
        """A thread that hands work to the pool; of one CPU it takes the place."""
        return Queue(self.cpus[0] if len(self.cpus) == 1 else -1)

    def expanding(self, queue: parts.Queue, part: ExpansionMove | Turn, signals: Signals) -> Submit:
        """By all threads."""
        native = parts.of_kind(queue, Queue)
        if isinstance(part, Turn):
            return submit_turn(native, self.pool, part, signals)
        return submit_expansion(native, self.pool, part, signals)

    def copy_pieces(
        self,
        queue: parts.Queue,
        copies: Sequence[tuple[parts.Buffer, SupportsBuffer]],
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        """By all threads."""
        parts.of_kind(queue, Queue).copy_pieces(self.pool, copies, times, wait, done)

    def workspace_size(self, spec: AnySpec) -> int:
        """Bytes of scratch that a stage needs."""
        return Stage.workspace_size(spec)

    def stage(self, spec: AnySpec, workspace: parts.Buffer, first_layer: int) -> Stage:
        """A stage over `workspace`."""
        return Stage(self.pool, spec, workspace, first_layer)

    def values(self, stage: parts.Stage) -> NativeValues:
        """Return the values that operations of a native stage leave, read in its workspace."""
        return NativeValues(parts.of_kind(stage, Stage))

    def turns(self, queue: parts.Queue, stage: parts.Stage) -> NativeTurns:
        """Turns of a native queue."""
        return NativeTurns(parts.of_kind(stage, Stage), parts.of_kind(queue, Queue))

    def driver(self, weights: PassWeights | None, lookups: Sequence[ExpertLookup] = ()) -> Driver:
        """The native submitter."""
        streamed = None
        if weights is not None:
            streamed = StreamedWeights(weights.operations, weights.ahead, weights.together, weights.table)
        return Driver(Cohort.size, Cohort, partial(ServingPass, weights=streamed, lookups=lookups))

    def time_operations(self, timed: bool) -> None:
        """They always have times of their own."""

    def read_rate(self, pieces: Sequence[Buffer]) -> float:
        """Bytes/s of all threads."""
        return read_rate(self.pool, pieces)

    def product_rate(self, fmt: StoredFormat, matrices: Sequence[Buffer], rounding: Precision) -> float:
        """FLOP/s of all threads."""
        return product_rate(self.pool, fmt, matrices, rounding)
