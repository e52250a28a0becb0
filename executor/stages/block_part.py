"""The part of a pass that a device computes of one block: where its operations find weights and caches."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from helmsman.executor.devices.operations import ExpertMatrices, LinearOperation
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.tensors import CacheBuffers, Linear, NormVectors, StoredHeads
from helmsman.executor.routing.slot_room import SlotRoom
from helmsman.executor.stages.common_operations import linear_operation
from helmsman.schemas.blocks.feed_forward import Activation
from helmsman.schemas.blocks.positions import Rope

Rotation = tuple[Buffer, Buffer]
"""Tables of cosines and sines."""


Runs = tuple[tuple[int, float], ...]
"""The values of a vector in runs of equal ones: how many, and which."""


class StageCache(NamedTuple):
    """The cache of a layer on a device: what is read, and where else new rows are kept."""

    keys: CacheBuffers
    values: CacheBuffers
    kept_keys: list[StoredHeads]
    kept_values: list[StoredHeads]
    rows: int | None = None
    """Of each sequence, where they are fewer than all positions."""


class SlotPart(NamedTuple):
    """Slots for the experts of a block. `turns`: whether those that are there are computed before those that come, as
    operations of their own."""

    room: SlotRoom
    turns: bool


class DevicePart(Protocol):
    """The part of a pass that one device computes."""

    def has(self, op: str, layer: int | None) -> bool:
        """Whether it computes an operation, or some of it."""

    def norm(self, op: str, layer: int | None) -> NormVectors | None:
        """Return what a norm stores."""

    def linear(self, op: str, layer: int | None) -> Linear | None:
        """Return the rows of a matrix that it multiplies."""

    def head_norm(self, op: str, name: str, layer: int) -> NormVectors | None:
        """Return `q_norm` or `k_norm` of the operation that appends, or turns queries alone."""

    def heads(self, op: str, layer: int) -> tuple[int, int] | None:
        """Return the KV heads that an operation of divided attention computes."""

    def cache(self, layer: int) -> StageCache:
        """Return the cache that a layer reads, its own or an earlier one's."""

    def experts(self, op: str, layer: int) -> ExpertMatrices | None:
        """Return the matrices of the experts that it multiplies."""

    def own_experts(self, layer: int) -> tuple[int, int] | None:
        """Return which experts those are, begin <= e < end; None where it multiplies none."""

    def slots(self, layer: int) -> SlotPart | None:
        """Return the slots whose experts it computes in a block; None where it computes experts that live here."""

    def recorded_choices(self, layer: int) -> Buffer | None:
        """Return where a router records what it chooses, int32 (batch, context, chosen); None where nobody asked."""

    def vector(self, op: str, name: str, layer: int) -> Buffer | None:
        """Return what an operation stores beside its matrix, f32; None where there is no such tensor."""

    def states(self, op: str, layer: int, width: int) -> Buffer | None:
        """Return f32 (rows, width): what an operation keeps of every sequence, and behind that its snapshots; None
        where it is not computed."""

    def snapshots(self) -> int:
        """Return how many tokens of a pass may be taken back, behind each of which but the last states are kept."""

    def tiled(self) -> bool:
        """Whether in weights of delta rules the first value heads of all key heads precede their second ones."""

    def rotation(self, rope: Rope) -> Rotation:
        """Return the tables of a rotation."""

    def constants(self, runs: Runs) -> Buffer:
        """Return an f32 vector of some values in a row: weights and factors that no checkpoint stores."""

    def layer_inputs(self) -> Buffer:
        """Return f32 (sequences, tokens of a pass, layers * width): what layers read of a token beside its hidden
        state."""

    def block_scale(self, layer: int) -> Buffer | None:
        """Return f32 (1,): the stored number that multiplies what a block leaves; None where there is none."""


@dataclass(frozen=True)
class BlockPart:
    """A block of a stage. `number`: among the stage's blocks; `layer`: among the model's; `divided`: attention is three
    operations; `apart`: in some block experts are computed elsewhere than their router; `context`: positions that there
    are at most, None: more than any window has."""

    part: DevicePart
    number: int
    layer: int
    divided: bool
    apart: bool = False
    context: int | None = None

    def product(
        self,
        name: str,
        inputs: list[str],
        output: str,
        shape: tuple[int, int],
        activation: Activation | None = None,
        factor: float = 1.0,
    ) -> LinearOperation:
        """Return the product of an operation's matrix, times a factor."""
        matrix = self.part.linear(name, self.layer)
        return {**linear_operation(name, self.number, inputs, output, shape, matrix, activation), "factor": factor}
