"""The part of a pass that a device computes of one block: where its operations find weights and caches."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from helmsman.executor.devices.operations import AnyOperation, ExpertMatrices
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.tensors import CacheBuffers, Linear, NormVectors, StoredHeads
from helmsman.executor.stages.common_operations import linear_operation
from helmsman.schemas.blocks.feed_forward import Activation
from helmsman.schemas.blocks.positions import Rope

Rotation = tuple[Buffer, Buffer]
"""Tables of cosines and sines."""


class StageCache(NamedTuple):
    """The cache of a layer on a device: what is read, and where else new rows are kept."""

    keys: CacheBuffers
    values: CacheBuffers
    kept_keys: list[StoredHeads]
    kept_values: list[StoredHeads]


class DevicePart(Protocol):
    """The part of a pass that one device computes."""

    def has(self, op: str, layer: int | None) -> bool:
        """Whether it computes an operation, or some of it."""

    def norm(self, op: str, layer: int | None) -> NormVectors | None:
        """Return what a norm stores."""

    def linear(self, op: str, layer: int | None) -> Linear | None:
        """Return the rows of a matrix that it multiplies."""

    def head_norm(self, name: str, layer: int) -> NormVectors | None:
        """Return `q_norm` or `k_norm`."""

    def heads(self, op: str, layer: int) -> tuple[int, int] | None:
        """Return the KV heads that an operation of divided attention computes."""

    def cache(self, layer: int) -> StageCache:
        """Return the cache of a layer."""

    def experts(self, op: str, layer: int) -> ExpertMatrices | None:
        """Return the matrices of all experts that it multiplies."""

    def vector(self, op: str, name: str, layer: int) -> Buffer | None:
        """Return what an operation stores beside its matrix, f32; None where there is no such tensor."""

    def rotation(self, rope: Rope) -> Rotation:
        """Return the tables of a rotation."""


@dataclass(frozen=True)
class BlockPart:
    """A block of a stage. `number`: among the stage's blocks; `layer`: among the model's."""

    part: DevicePart
    number: int
    layer: int
    divided: bool

    def product(
        self, name: str, inputs: list[str], output: str, shape: tuple[int, int], activation: Activation | None = None
    ) -> AnyOperation:
        """Return the product of an operation's matrix."""
        return linear_operation(
            name, self.number, inputs, output, shape, self.part.linear(name, self.layer), activation
        )
