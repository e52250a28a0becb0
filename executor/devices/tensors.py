"""The tensors of stages: matrices, norms, rows of caches. Keys as the native stage reads them (csrc/bindings)."""

from typing import Literal, NotRequired, TypeAlias, TypedDict

from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor.devices.parts import Buffer
from helmsman.schemas.formats import Precision, StoredFormat

Vector: TypeAlias = Buffer | SupportsBuffer
"""f32 values."""
CacheBuffers: TypeAlias = Buffer | list[tuple[int, int, Buffer]] | None
"""Rows of all KV heads; or (begin, end, buffer) of some each, of which the last counts where several hold a head."""


class NormVectors(TypedDict):
    """Of a row of activations."""

    weight: Vector
    """f32 (hidden,), or (head_dim,), or a whole projection, for QK norms."""
    bias: Vector | None


class NormParts(NormVectors):
    """The parts of a norm that differs from that of its operation."""

    norm: Literal["rms", "layer"]
    eps: float


class Linear(TypedDict):
    """A matrix in the memory of the device that multiplies it."""

    weight: Buffer
    format: StoredFormat
    rows: int
    columns: int
    bias: Vector | None
    """f32 (rows,)."""
    first: NotRequired[int]
    """A part of an operation of a block: the matrix holds its output rows [first, first + rows). Default 0; a
    multiple of 16."""
    activations: NotRequired[Precision]
    """Default int16."""
    panels: NotRequired[bool]
    """For stages of other devices, which keep their own rows unpacked: whether this one came over a link, packed."""


class StoredHeads(TypedDict):
    """Rows of KV heads [begin, end) as a memory keeps them: (batch, heads, capacity, row), or (batch, capacity, heads,
    row) `by_token`. `groups`: rows are in 4-bit groups (`compress_rows`), else in the KV format."""

    heads: tuple[int, int]
    rows: Buffer
    groups: bool
    by_token: bool
