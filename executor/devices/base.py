"""The interfaces of a device, its memory and its lanes, whatever drives them.

What they hand out is in `parts`, what stages are made of in `specs`, and what serves in `iterations`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from numpy.typing import NDArray
from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor._kernels import Event
from helmsman.executor.devices.iterations import Driver, ExpertLookup, PassWeights
from helmsman.executor.devices.move_calls import ExpansionMove, Signals, Submit, Turn
from helmsman.executor.devices.parts import Buffer, CopyEngine, Queue, Stage
from helmsman.executor.devices.specs import AnySpec
from helmsman.executor.devices.stage_turns import StageTurns, StageValues
from helmsman.executor.system.rates import per_second
from helmsman.schemas.formats import Precision, StoredFormat

if TYPE_CHECKING:
    from helmsman.executor.weights.conversion import Rows


ATTEMPTS = 5
"""Pairs of a large and a small copy that are measured before a link counts as never undisturbed."""


@dataclass(frozen=True)
class LinkSample:
    """A sample of a lane: bytes/s of a large copy, seconds of a small one."""

    rate: float
    latency: float

    @classmethod
    def of(cls, seconds: Callable[[int], float], large: int, small: int) -> Self:
        """The sample that copies of `large` and `small` bytes tell; `seconds` measures copies of that many bytes.

        Both sizes are measured again where the small copies took as long as the large ones, which a disturbance does:
        their difference says nothing then. After ATTEMPTS such pairs the rate is that of the large copies with their
        latency, which is too low rather than without meaning."""
        for _ in range(ATTEMPTS):
            whole, latency = seconds(large), seconds(small)
            if latency < whole:
                return cls(large / (whole - latency), latency)
        return cls(per_second(large, whole, "a link"), latency)


@dataclass(frozen=True)
class Lane:
    """The name that its transfers carry in traces, the engine that moves bytes, and what it does right now."""

    name: str
    engine: CopyEngine
    sample: Callable[[], LinkSample]


class DeviceMemory(Protocol):
    """A bounded memory."""

    @property
    def name(self) -> str:
        """As plans call it."""

    @property
    def capacity(self) -> int:
        """Bytes that may be allocated."""

    @property
    def used(self) -> int:
        """Bytes that are."""

    def alloc(self, size: int, what: str) -> Buffer:
        """A zeroed buffer of `size` bytes. Raises InfeasibleError when it does not fit."""

    def share(self, size: int, what: str) -> HostBuffer:
        """A buffer that the host reads and writes too."""

    def place(self, values: NDArray[Any], what: str) -> Buffer:
        """A buffer that holds a copy of `values`."""

    def keep(self, source: "Rows", source_format: str, fmt: StoredFormat, columns: int, what: str) -> Buffer:
        """A matrix, its rows in `source`, as products of this memory's devices read it in `fmt`.

        Raises FloatingPointError where a value is not finite."""


class ExecutorDevice(Protocol):
    """Something that computes from one memory. `cpus`: processors of the host that it owns."""

    @property
    def name(self) -> str:
        """As plans call it."""

    @property
    def memory(self) -> DeviceMemory:
        """The memory it computes from."""

    @property
    def cpus(self) -> tuple[int, ...]:
        """Of the host; none where it has processors of its own."""

    def open_queue(self) -> Queue:
        """The lane on which it computes."""

    def expanding(self, queue: Queue, part: ExpansionMove | Turn, signals: Signals) -> Submit:
        """Return the function that submits `part` to one of its queues in a pass."""

    def copy_pieces(
        self,
        queue: Queue,
        copies: Sequence[tuple[Buffer, SupportsBuffer]],
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        """Submit copies within buffers of its memory to one of its queues: of each, pieces int64 (n, 3), target offset,
        source offset and bytes, to places that are apart from them. `times`: f64 (2,), filled with start and end."""

    def workspace_size(self, spec: AnySpec) -> int:
        """Bytes of scratch that a stage needs."""

    def stage(self, spec: AnySpec, workspace: Buffer, first_layer: int) -> Stage:
        """A stage over `workspace`."""

    def values(self, stage: Stage) -> StageValues:
        """Return what the operations of a stage leave, as the host reads it."""

    def turns(self, queue: Queue, stage: Stage) -> StageTurns:
        """Return what the host does between operations of a stage on one of its queues."""

    def driver(self, weights: PassWeights | None, lookups: Sequence[ExpertLookup] = ()) -> Driver:
        """Return the driver of its iterations when it serves, to which `weights` come in every pass; `lookups`: of
        experts that are not all there, by block."""

    def time_operations(self, timed: bool) -> None:
        """Whether operations of the next passes need times of their own, even where that takes time."""

    def read_rate(self, pieces: Sequence[HostBuffer]) -> float:
        """Bytes/s at which it reads its memory now; `pieces`: noise in the host's."""

    def product_rate(self, fmt: StoredFormat, matrices: Sequence[HostBuffer], rounding: Precision) -> float:
        """FLOP/s of a product with weights in `fmt` now, its activations rounded where the device does that;
        `matrices`: noise in the host's memory."""


class PageLocked(Protocol):
    """Memory of the host that is page-locked."""

    def release(self) -> None:
        """Unlock all of it."""


class Accelerator(ExecutorDevice, Protocol):
    """A device with a memory of its own, which moves bytes over its links itself."""

    def open_lane(self, name: str, source: DeviceMemory | None, target: DeviceMemory | None) -> Lane:
        """A lane of a link between two memories, of which one is its own; None: the host's."""

    def pin(self, buffers: Iterable[Buffer]) -> PageLocked:
        """The host's among `buffers`, page-locked for its copies until they are released.

        Raises InfeasibleError when the system does not lock that much."""
