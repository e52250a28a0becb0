"""The specifications of stages: dimensions, weights, caches. Keys as the native stage reads them (csrc/bindings)."""

from typing import Literal, NotRequired, TypeAlias, TypedDict, final

from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor.devices.parts import Buffer
from helmsman.schemas.formats import KvFormat, Precision, StoredFormat
from helmsman.schemas.rounding import FloatPrecision

Vector: TypeAlias = Buffer | SupportsBuffer
"""f32 values."""
CacheBuffers: TypeAlias = Buffer | list[tuple[int, int, Buffer]] | None
"""Rows of all KV heads; or (begin, end, buffer) of some each, of which the last counts where several hold a head."""


class Norm(TypedDict):
    """Of a row of activations."""

    weight: Vector
    """f32 (hidden,), or (head_dim,) for QK norms."""
    bias: Vector | None


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


class Block(TypedDict):
    """One layer. What a stage never runs may be None; running it all the same raises ValueError."""

    norm1: Norm | None
    q: Linear | None
    k: Linear | None
    v: Linear | None
    q_norm: Norm | None
    k_norm: Norm | None
    o: Linear | None
    norm2: Norm | None
    gate: Linear | None
    up: Linear | None
    """Its activation is applied to the same rows, with the gate's values in the workspace."""
    down: Linear | None
    keys: CacheBuffers
    """(batch, kv_heads, capacity, head_dim) in the KV format; divided: (batch, kv_heads, head_dim, capacity)."""
    values: CacheBuffers
    """(batch, kv_heads, capacity, head_dim)."""
    kept_keys: NotRequired[list[StoredHeads]]
    """Where else `append` leaves new rows."""
    kept_values: NotRequired[list[StoredHeads]]
    passing_keys: NotRequired[Buffer | None]
    """(kv_heads, passing, head_dim): where blocks take turns, what is kept elsewhere."""
    passing_values: NotRequired[Buffer | None]
    scores_heads: NotRequired[tuple[int, int] | None]
    """Divided: the KV heads [begin, end) that `scores` computes. Default: all."""
    wv_heads: NotRequired[tuple[int, int] | None]


class Dimensions(TypedDict):
    """The dimensions of a model that a stage needs."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    norm: Literal["rms", "layer"]
    norm_eps: float
    activation: Literal["silu", "relu", "gelu", "gelu_tanh"]
    gated: NotRequired[bool]
    """Whether blocks have the operation `gate`. Default: whether a block here has one."""


class StageSpec(Dimensions):
    """The parts of every stage."""

    batch: int
    capacity: int
    """Tokens each sequence's cache can hold."""
    max_tokens: int
    """Most tokens per sequence in one pass."""
    kv_format: KvFormat
    """q8_0: not with divided attention."""
    paged: NotRequired[bool]
    """Caches are rings: position p lies in row p % capacity, and attention can be done by `Queue.attend` in several
    calls; the operation `attention` itself only while past + tokens is at most the capacity."""
    context: NotRequired[int]
    """Positions there are: rows of cos, sin, positions and kept rows. Default, and unless paged: the capacity."""
    attention: NotRequired[Literal["fused", "divided"]]
    """fused (default): one operation `attention`; divided: `scores`, `softmax`, `wv`."""
    attention_activations: NotRequired[FloatPrecision]
    """The format to which `attention` rounds queries, keys, values and its own weights where a sequence has several
    tokens. Default: f32."""
    rotary_dim: int
    """0: no rotation."""
    cos: Vector | None
    """f32 (context, rotary_dim / 2)."""
    sin: Vector | None
    embedding: Linear | None
    """The token table, packed like a linear layer of `vocab` rows (a tied head shares it)."""
    looked_up: NotRequired[bool]
    """`embedding` is the rows of a pass's own tokens, row-major (batch, tokens, hidden) of a pass, `rows` being batch *
    max_tokens: ids are checked, and not looked up."""
    positions: Vector | None
    """f32 (context, hidden): learned positions of tokens 0, 1, ..."""
    blocks: list[Block]
    final_norm: Norm | None
    head: Linear | None


@final
class UniformSpec(StageSpec):
    """Of a stage whose sequences advance together, by as many tokens each."""


@final
class RaggedSpec(StageSpec):
    """Of a stage for `Ragged` passes: of up to max_tokens rows, of which up to `sequences` yield logits. batch is 1,
    capacity the rows of a KV head's caches, all sequences together, context the positions there are."""

    sequences: int
    passing: int
    """Rows of caches behind those: passing_keys and passing_values."""


AnySpec: TypeAlias = UniformSpec | RaggedSpec
"""Ragged ones have the key `sequences`."""
