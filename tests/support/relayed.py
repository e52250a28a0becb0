"""An accelerator whose parts are none of the executor's own: it relays all that it is asked to native parts, as one
behind a wire would. Its own types are all that the executor sees of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor._kernels import Cohort, CopyEngine, Event, Pool, Queue, ServingPass, Stage
from helmsman.executor.devices import parts
from helmsman.executor.devices.base import Accelerator, DeviceMemory, Lane, LinkSample, PageLocked
from helmsman.executor.devices.cpu import NativeTurns, NativeValues
from helmsman.executor.devices.iterations import Driver, ExpertLookup, PassWeights
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.executor.devices.move_calls import (
    UNLIMITED,
    ExpansionMove,
    Signals,
    Submit,
    Turn,
    submit_expansion,
    submit_turn,
)
from helmsman.executor.devices.specs import AnySpec
from helmsman.executor.devices.stage_turns import StageTurns, StageValues
from helmsman.executor.system.machine import Machine
from helmsman.executor.weights.conversion import Rows
from helmsman.schemas.formats import Precision, StoredFormat
from helmsman.schemas.hardware import Device as DeviceRecord
from helmsman.schemas.hardware import Hardware


class RelayedBuffer:
    """`far`: where the bytes are."""

    def __init__(self, far: HostBuffer) -> None:
        self.far = far

    @property
    def size(self) -> int:
        return self.far.size

    def part(self, offset: int, size: int) -> "RelayedBuffer":
        return RelayedBuffer(self.far.part(offset, size))


def far(buffer: parts.Buffer) -> HostBuffer:
    """A buffer of either side."""
    return buffer.far if isinstance(buffer, RelayedBuffer) else parts.of_kind(buffer, HostBuffer)


def relayed(value: Any) -> Any:
    """A value with all parts of such devices in it as the far side knows them."""
    if isinstance(value, Mapping):
        return {key: relayed(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(relayed(each) for each in value)
    mine = isinstance(value, RelayedBuffer | RelayedStage | RelayedQueue | RelayedEngine)
    return value.far if mine else value


class RelayedMemory:
    def __init__(self, memory: BoundedMemory) -> None:
        self.memory, self.name, self.capacity = memory, memory.name, memory.capacity

    @property
    def used(self) -> int:
        return self.memory.used

    def alloc(self, size: int, what: str) -> RelayedBuffer:
        return RelayedBuffer(self.memory.alloc(size, what))

    def share(self, size: int, what: str) -> HostBuffer:
        return self.memory.share(size, what)

    def place(self, values: NDArray[Any], what: str) -> RelayedBuffer:
        return RelayedBuffer(self.memory.place(values, what))

    def keep(self, source: Rows, source_format: str, fmt: StoredFormat, columns: int, what: str) -> RelayedBuffer:
        return RelayedBuffer(self.memory.keep(source, source_format, fmt, columns, what))


class RelayedStage:
    def __init__(self, stage: Stage, workspace: RelayedBuffer) -> None:
        self.far, self.workspace, self.ops = stage, workspace, stage.ops

    def regions(self) -> dict[str, parts.Region]:
        return self.far.regions()

    def logits(self) -> memoryview:
        return self.far.logits()


class RelayedQueue:
    def __init__(self) -> None:
        self.far = Queue()

    def run(
        self,
        stage: parts.Stage,
        source: parts.Buffer | None,
        target: parts.Buffer | None,
        tokens: int,
        past: int,
        stamps: SupportsBuffer,
        first: int = 0,
        last: int | None = None,
        start: int = 0,
        stop: int | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        mine = parts.of_kind(stage, RelayedStage).far
        self.far.run(mine, relayed(source), relayed(target), tokens, past, stamps, first, last, start, stop, wait, done)

    def attend(
        self,
        stage: parts.Stage,
        block: int,
        spans: Sequence[parts.KvSpan],
        first: bool,
        last: bool,
        tokens: int,
        past: int,
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        mine = parts.of_kind(stage, RelayedStage).far
        self.far.attend(mine, block, relayed(list(spans)), first, last, tokens, past, times, wait, done)

    def check(self) -> None:
        self.far.check()

    def synchronize(self) -> None:
        self.far.synchronize()


class RelayedEngine:
    def __init__(self) -> None:
        self.far = CopyEngine(UNLIMITED, 0.0, -1)

    def submit(
        self,
        target: parts.Buffer,
        target_offset: int,
        source: parts.Buffer,
        source_offset: int,
        size: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        self.far.submit(far(target), target_offset, far(source), source_offset, size, wait, done, times)

    def submit_pieces(
        self,
        target: parts.Buffer,
        target_offset: int,
        source: parts.Buffer,
        source_offset: int,
        pieces: SupportsBuffer,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        self.far.submit_pieces(far(target), target_offset, far(source), source_offset, pieces, wait, done, times)

    def submit_strided(
        self,
        target: parts.Buffer,
        target_offset: int,
        target_strides: tuple[int, int],
        source: parts.Buffer,
        source_offset: int,
        source_strides: tuple[int, int],
        counts: tuple[int, int],
        size: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        to, of = (far(target), target_offset, target_strides), (far(source), source_offset, source_strides)
        self.far.submit_strided(*to, *of, counts, size, wait, done, times)

    def submit_lookup(
        self,
        target: parts.Buffer,
        target_offset: int,
        table: HostBuffer,
        fmt: StoredFormat,
        rows: int,
        columns: int,
        ids: HostBuffer,
        count: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        self.far.submit_lookup(far(target), target_offset, table, fmt, rows, columns, ids, count, wait, done, times)


class RelayedTurns(NativeTurns):
    def run(self, hidden: parts.Buffer | None, tokens: int, past: int, ops: range, chunk: range) -> None:
        super().run(None if hidden is None else far(hidden), tokens, past, ops, chunk)


class RelayedDevice:
    """On one processor of this machine."""

    def __init__(self, name: str, memory: RelayedMemory, cpu: int) -> None:
        self.name, self.memory = name, memory
        self.cpus: tuple[int, ...] = ()
        self._pool = Pool([cpu])

    def open_queue(self) -> RelayedQueue:
        return RelayedQueue()

    def open_lane(self, name: str, source: DeviceMemory | None, target: DeviceMemory | None) -> Lane:
        return Lane(name, RelayedEngine(), lambda: LinkSample(UNLIMITED, 0.0))

    def pin(self, buffers: Iterable[parts.Buffer]) -> PageLocked:
        return self

    def release(self) -> None:
        """Nothing was page-locked."""

    def expanding(self, queue: parts.Queue, part: ExpansionMove | Turn, signals: Signals) -> Submit:
        mine = parts.of_kind(queue, RelayedQueue).far
        there = replace(part, source=far(part.source), target=far(part.target))
        if isinstance(there, Turn):
            return submit_turn(mine, self._pool, there, signals)
        return submit_expansion(mine, self._pool, there, signals)

    def copy_pieces(
        self,
        queue: parts.Queue,
        copies: Sequence[tuple[parts.Buffer, SupportsBuffer]],
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        mine = parts.of_kind(queue, RelayedQueue).far
        mine.copy_pieces(self._pool, [(far(buffer), pieces) for buffer, pieces in copies], times, wait, done)

    def workspace_size(self, spec: AnySpec) -> int:
        return Stage.workspace_size(relayed(spec))

    def stage(self, spec: AnySpec, workspace: parts.Buffer, first_layer: int) -> RelayedStage:
        mine = parts.of_kind(workspace, RelayedBuffer)
        return RelayedStage(Stage(self._pool, relayed(spec), mine.far, first_layer), mine)

    def turns(self, queue: parts.Queue, stage: parts.Stage) -> StageTurns:
        return RelayedTurns(parts.of_kind(stage, RelayedStage).far, parts.of_kind(queue, RelayedQueue).far)

    def values(self, stage: parts.Stage) -> StageValues:
        return NativeValues(parts.of_kind(stage, RelayedStage).far)

    def driver(self, weights: PassWeights | None, lookups: Sequence[ExpertLookup] = ()) -> Driver:
        assert weights is None, "this device serves with all weights there"
        native = partial(ServingPass, weights=None, lookups=lookups)

        def begin(*arguments: Any) -> ServingPass:
            return native(*relayed(arguments))

        def cohort(*arguments: Any) -> Cohort:
            return Cohort(*relayed(arguments))

        return Driver(lambda stage, rows: Cohort.size(relayed(stage), rows), cohort, begin)

    def time_operations(self, timed: bool) -> None:
        """They always have times of their own."""

    def read_rate(self, pieces: Sequence[HostBuffer]) -> float:
        return 1e9

    def product_rate(self, fmt: StoredFormat, matrices: Sequence[HostBuffer], rounding: Precision) -> float:
        return 1e9


def open_relayed(hardware: Hardware, record: DeviceRecord, machine: Machine) -> Accelerator:
    """As `accelerators.OPENERS` has openers."""
    memory = hardware.memory(record.memory)
    return RelayedDevice(record.name, RelayedMemory(BoundedMemory(memory, memory.available)), machine.cpus[-1])
