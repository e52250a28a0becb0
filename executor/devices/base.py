"""What the engine asks of a device: bounded memory, stages that run, copies with a ticket to wait on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Buffer, CopyEngine, Pool
from helmsman.executor.devices.memory import BoundedMemory

if TYPE_CHECKING:
    from helmsman.executor._kernels import StageSpec


class RunnableStage(Protocol):
    """Consecutive operations of one device as one call (see `_kernels.Stage`)."""

    @property
    def ops(self) -> Sequence[str]:
        """Names of the operations as lowering gives them."""

    def run(self, source: Buffer, target: Buffer, tokens: int, past: int, stamps: SupportsBuffer) -> None:
        """Every sequence advances by `tokens` on top of `past` cached ones."""

    def logits(self) -> memoryview:
        """f32 (batch, vocab) of the last pass."""


class Device(Protocol):
    """Something that runs stages from its own memory."""

    @property
    def name(self) -> str:
        """The name of its record, and of its lane in traces."""

    @property
    def memory(self) -> BoundedMemory:
        """Where its weights, caches and activations live."""

    @property
    def pool(self) -> Pool:
        """The threads that compute, for probes."""

    def stage(self, spec: "StageSpec", first_layer: int) -> RunnableStage:
        """A stage ready to run; allocates its workspace in `memory`."""


@dataclass(frozen=True)
class Lane:
    """One direction of a link: the name its transfers carry in traces, and the engine that moves bytes."""

    name: str
    engine: CopyEngine
