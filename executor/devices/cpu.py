"""A device made of processors: the host, or a loopback accelerator.

A loopback accelerator computes with the host's kernels, but on CPUs of its own, from memory of its own, behind
copies that take as long as its link's record says; so splits, transfers and running out of memory are real on any
machine."""

from collections.abc import Sequence
from functools import partial

from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Buffer, Cohort, Event, Pool, Queue, ServingPass, Stage, StreamedWeights
from helmsman.executor.devices import parts
from helmsman.executor.devices.iterations import Driver, ExpertLookup
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.executor.devices.move_calls import ExpansionMove, Signals, Submit, Turn, submit_expansion, submit_turn
from helmsman.executor.devices.probe import product_rate, read_rate
from helmsman.executor.devices.specs import AnySpec
from helmsman.schemas.formats import Precision, StoredFormat


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

    def driver(self, weights: StreamedWeights | None, lookups: Sequence[ExpertLookup] = ()) -> Driver:
        """The native submitter."""
        return Driver(Cohort.size, Cohort, partial(ServingPass, weights=weights, lookups=lookups))

    def time_operations(self, timed: bool) -> None:
        """They always have times of their own."""

    def read_rate(self, pieces: Sequence[Buffer]) -> float:
        """Bytes/s of all threads."""
        return read_rate(self.pool, pieces)

    def product_rate(self, fmt: StoredFormat, matrices: Sequence[Buffer], rounding: Precision) -> float:
        """FLOP/s of all threads."""
        return product_rate(self.pool, fmt, matrices, rounding)
