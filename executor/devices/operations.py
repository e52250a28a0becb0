"""The specifications of a stage's operations, a type for each kind. Keys as the native stage reads them
(csrc/bindings).

An operation has a name, its block among those of the stage, and values in the workspace by name, each `inputs` and an
`output`: rows of the residual stream `hidden`, of a norm `normed`, of what attention gives `attended`, of `logits`; any
other name is a value of its own. What a stage never runs may lack weights and caches; running it all the same raises
ValueError."""

from typing import Literal, NotRequired, TypeAlias, TypedDict

from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.tensors import CacheBuffers, Linear, NormVectors, StoredHeads, Vector
from helmsman.schemas.blocks.feed_forward import Activation
from helmsman.schemas.formats import Precision, StoredFormat

NormKind = Literal["rms", "layer"]


class Named(TypedDict):
    """The parts of every operation."""

    name: str
    block: int | None
    """Among the blocks of the stage; None: outside them."""
    inputs: list[str]
    output: str


class EmbeddingOperation(Named):
    """Looks up the rows of tokens."""

    kind: Literal["embedding"]
    table: Linear
    """The token table, packed like a linear layer of `vocab` rows (a tied head shares it)."""
    looked_up: bool
    """`table` is the rows of a pass's own tokens, row-major (batch, tokens, hidden) of a pass, `rows` being batch *
    max_tokens: ids are checked, and not looked up."""
    positions: Vector | None
    """f32 (context, hidden): learned positions of tokens 0, 1, ..."""


class NormOperation(Named):
    """Norms the hidden states of all rows, or those of every sequence's last token."""

    kind: Literal["norm"]
    norm: NormKind
    eps: float
    weights: NormVectors | None
    last: bool


class LinearOperation(Named):
    """Multiplies inputs[0] by a matrix of (rows, columns): into a value of its own, or added to `hidden`.

    `activation`: what becomes of the product, times inputs[1], a gate, before that where there is one."""

    kind: Literal["linear"]
    rows: int
    columns: int
    matrix: Linear | None
    activation: Activation | None


class HeadOperation(Named):
    """Leaves logits of the last token of every sequence, and chooses the likeliest."""

    kind: Literal["head"]
    matrix: Linear


class HeadShape(Named):
    """The heads of an operation of attention."""

    heads: int
    kv_heads: int
    head_dim: int


class CacheUser(HeadShape):
    """The caches that an operation of attention reads or writes."""

    keys: CacheBuffers
    """(batch, kv_heads, capacity, head_dim) in the KV format; divided: (batch, kv_heads, head_dim, capacity)."""
    values: CacheBuffers
    """(batch, kv_heads, capacity, head_dim)."""
    passing_keys: NotRequired[Buffer | None]
    """(kv_heads, passing, head_dim): where blocks take turns, what is kept elsewhere."""
    passing_values: NotRequired[Buffer | None]


class AppendOperation(CacheUser):
    """Norms and rotates queries and keys, and keeps new keys and values."""

    kind: Literal["append"]
    norm: NormKind
    eps: float
    over: Literal["head", "projection"]
    """Whether a QK norm takes every head by itself, or all heads of a row together."""
    q_norm: NormVectors | None
    k_norm: NormVectors | None
    rotary_dim: int
    """0: no rotation."""
    cos: Vector | None
    """f32 (context, rotary_dim / 2)."""
    sin: Vector | None
    transposed: bool
    """Keys, for divided attention."""
    kept_keys: list[StoredHeads]
    """Where else new rows are left."""
    kept_values: list[StoredHeads]


class AttentionOperation(CacheUser):
    """Attends to the cache, in one operation."""

    kind: Literal["attention"]


class DividedAttention(CacheUser):
    """One of the three operations of divided attention, of the KV heads [begin, end) that it `computes`, or of all."""

    kind: Literal["scores", "softmax", "weighted"]
    computes: tuple[int, int] | None


class RouterOperation(Named):
    """Chooses experts for every row by the product with a matrix: logits to `output`, indices (int32) of the chosen,
    ascending, to `choice`, their weights to `shares`. Fields as `schemas.blocks.feed_forward.Router` has them."""

    kind: Literal["router"]
    choice: str
    shares: str
    matrix: Linear | None
    experts: int
    chosen: int
    score: Literal["softmax", "sigmoid", "sqrt-softplus", "none"]
    weights: Literal["scores", "softmax-of-chosen"]
    normalised: bool
    eps: float
    scaling: float
    correction: Vector | None
    """f32 (experts,): added to scores for choosing alone."""
    expert_scale: Vector | None
    """f32 (experts,): multiplies weights."""
    groups: int
    """0: none."""
    kept: int
    by: Literal["best", "best-two"]


class ExpertMatrices(TypedDict):
    """One matrix of every expert, packed, each in a buffer."""

    weights: list[Buffer]
    format: StoredFormat
    bias: Vector | None
    """f32 (experts, rows)."""
    activations: Precision


class ExpertsOperation(Named):
    """Adds to `hidden` the weighted networks that were chosen: inputs are their input, the choice and its weights.

    Networks have `rows` values inside; gate and up have as many rows, down as many columns."""

    kind: Literal["experts"]
    experts: int
    chosen: int
    rows: int
    gate: ExpertMatrices | None
    up: ExpertMatrices | None
    down: ExpertMatrices | None
    activation: Activation
    limit: float | None
    """The magnitude to which gate (above only) and up are cut."""
    input_scaled: bool
    """Whether weights multiply inputs, not outcomes."""


class MemberOperation(Named):
    """Stands for work that a later operation of the stage does."""

    kind: Literal["member"]


class RowGateOperation(Named):
    """Multiplies each row of inputs[1], of `rows` values, by the sigmoid of inputs[0] times a matrix of one row."""

    kind: Literal["row-gate"]
    rows: int
    matrix: Linear | None


AnyOperation: TypeAlias = (
    EmbeddingOperation
    | NormOperation
    | LinearOperation
    | HeadOperation
    | AppendOperation
    | AttentionOperation
    | DividedAttention
    | RouterOperation
    | ExpertsOperation
    | MemberOperation
    | RowGateOperation
)
