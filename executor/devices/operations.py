"""The specifications of a stage's operations, a type for each kind. Keys as the native stage reads them
(csrc/bindings).

An operation has a name, its block among those of the stage, and values in the workspace by name, each `inputs` and an
`output`: rows of the residual stream `hidden`, of a norm `normed`, of what attention gives `attended`, of `logits`; any
other name is a value of its own. What a stage never runs may lack weights and caches; running it all the same raises
ValueError."""

from typing import Literal, NotRequired, TypeAlias, TypedDict

from helmsman.executor._kernels import Event
from helmsman.executor.devices.mixer_operations import ConvolutionOperation, GatedNormOperation, RecurrenceOperation
from helmsman.executor.devices.named_operation import Named
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.tensors import CacheBuffers, Linear, NormParts, NormVectors, StoredHeads, Vector
from helmsman.schemas.blocks.feed_forward import Activation
from helmsman.schemas.formats import Precision, StoredFormat

NormKind = Literal["rms", "layer"]


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
    scale: NotRequired[float]
    """By what rows of the table are multiplied. Default 1."""


class LayerTableOperation(Named):
    """Looks up the rows of tokens that layers read beside hidden states, all layers' in one row: they are left in a
    buffer beside the workspace, which keeps those of all tokens of a pass."""

    kind: Literal["layer-table"]
    table: Linear
    looked_up: bool
    """As that of the embedding."""
    scale: float
    layer_inputs: Buffer
    """f32 (batch, tokens of a pass, columns of the table)."""


class LayerInputsOperation(Named):
    """Norms every layer's part of a row of inputs[0], adds that to the row of the buffer, and multiplies the sum."""

    kind: Literal["layer-inputs"]
    width: int
    """Values of a row."""
    part: int
    """Values of a layer's part."""
    norm: NormKind
    eps: float
    weights: NormVectors | None
    """Of a part."""
    scale: float
    layer_inputs: Buffer


class NormOperation(Named):
    """Norms the hidden states of all rows, or those of every sequence's last token."""

    kind: Literal["norm"]
    norm: NormKind
    eps: float
    weights: NormVectors | None
    last: bool
    continues: NotRequired[bool]
    """Whether values of the body before it are read after it, so that those that follow get other places."""


class NormSumOperation(Named):
    """Norms inputs[0], rows as wide as hidden states, and adds that to the output, or leaves it there."""

    kind: Literal["norm-sum"]
    norm: NormKind
    eps: float
    weights: NormVectors | None
    adds: bool
    factor: Vector | None
    """f32 (1,): multiplies what is in the output afterwards."""


class LinearOperation(Named):
    """Multiplies inputs[0] by a matrix of (rows, columns): into a value of its own, or added to `hidden`.

    `activation`: what becomes of the product, times inputs[1], a gate, before that where there is one."""

    kind: Literal["linear"]
    rows: int
    columns: int
    matrix: Linear | None
    activation: Activation | None
    factor: NotRequired[float]
    """By what the product, with its bias, is multiplied before all that, not 0. Default 1."""
    layer_inputs: NotRequired[Buffer | None]
    """f32 (batch, tokens of a pass, `width`): columns [at, at + rows) multiply what the activation makes."""
    width: NotRequired[int]
    at: NotRequired[int]


class HeadOperation(Named):
    """Leaves logits of the last token of every sequence, and chooses the likeliest."""

    kind: Literal["head"]
    matrix: Linear
    factor: NotRequired[float]
    """By what logits are multiplied, not 0. Default 1."""
    softcap: NotRequired[float | None]
    """After that, logits become softcap * tanh(logit / softcap)."""


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
    rows: NotRequired[int]
    """Rows of each sequence's cache, where they are fewer than the stage's capacity: a ring over which a window
    goes."""
    scale: NotRequired[float]
    """By what scores are multiplied. Default: 1 / sqrt(head_dim)."""
    softcap: NotRequired[float | None]
    """Scores become softcap * tanh(score / softcap)."""
    window: NotRequired[int | None]
    """Positions that a token sees, itself the last of them."""
    sinks: NotRequired[Vector | None]
    """f32 (heads,): logits that join the softmax, and have no values."""


class AppendOperation(CacheUser):
    """Norms and rotates queries and keys, and keeps new keys and values: with two inputs, keys before that are values
    too; with one, queries attend to a cache that another block appends to."""

    kind: Literal["append"]
    norm: NormKind
    eps: float
    over: Literal["head", "projection"]
    """Whether a QK norm takes every head by itself, or all heads of a row together."""
    value_norm: NotRequired[NormParts | None]
    """Of every head's values."""
    q_norm: NormVectors | None
    k_norm: NormVectors | None
    rotary_dim: int
    """0: no rotation."""
    cos: Vector | None
    """f32 (context, rotary_dim / 2)."""
    sin: Vector | None
    gated: NotRequired[bool]
    """Whether inputs[0] has a gate of head_dim values behind the queries of every head; these are left in `output`
    without."""
    transposed: bool
    """Keys, for divided attention."""
    kept_keys: list[StoredHeads]
    """Where else new rows are left."""
    kept_values: list[StoredHeads]


class AttentionOperation(CacheUser):
    """Attends to the cache, in one operation; with gated queries as inputs[1] the outcome of every head is multiplied
    by the sigmoid of its gate."""

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
    message: NotRequired[str | None]
    """Where experts are computed elsewhere too: rows of inputs[0], indices and weights one after the other."""
    sends: NotRequired[bool]
    """Whether the message is written."""
    record: NotRequired[Buffer | None]
    """int32 (batch, context, chosen): the indices that were chosen at every position, where they are recorded."""
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
    input_norm: NotRequired[NormParts]
    """Of its input, hidden states, which it leaves to `router_input`."""
    logit_scale: NotRequired[float]
    """By what logits are multiplied. Default 1."""


class ExpertMatrices(TypedDict):
    """One matrix of every expert, packed, each in a buffer; None: it is computed elsewhere."""

    weights: list[Buffer | None]
    format: StoredFormat
    bias: Vector | None
    """f32 (experts, rows)."""
    activations: Precision
    panels: NotRequired[tuple[int, int]]
    """For stages of other devices, which keep their own rows unpacked: the experts that came over a link, packed."""


class ExpertsOperation(Named):
    """Adds to `hidden` the weighted networks that were chosen, or leaves them in a value of their own: inputs are their
    input, the choice and its weights. Away from the router the input is its message, and the output their sum alone.

    Networks have `rows` values inside; gate and up have as many rows, down as many columns."""

    kind: Literal["experts"]
    experts: int
    chosen: int
    rows: int
    own: NotRequired[tuple[int, int] | None]
    """The experts begin <= e < end that are computed here: by default all."""
    sum: NotRequired[str | None]
    """The value in which sums arrive that were computed elsewhere."""
    width: NotRequired[int]
    """Values of a row of their input and of what they leave, where these are not hidden states."""
    slots: NotRequired[Buffer | None]
    """int32 (experts + 1,): which of the matrices are an expert's; below 0: it is not computed here. The last: not 0
    where the sum goes on to which others have been added."""
    late: NotRequired[Buffer | None]
    """int32 (experts,): not 0 for those whose matrices are there once `arrived` is signalled."""
    arrived: NotRequired[Event | None]
    turns: NotRequired[bool]
    """Whether as many members as there are matrices come before the others, for experts that are not late."""
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


class CombineOperation(Named):
    """Adds inputs[0], the sum of what was computed elsewhere, to `hidden`."""

    kind: Literal["combine"]


class RowGateOperation(Named):
    """Multiplies each row of inputs[1], of `rows` values, by the sigmoid of inputs[0] times a matrix of one row."""

    kind: Literal["row-gate"]
    rows: int
    matrix: Linear | None


class ValueNormOperation(Named):
    """Norms every row of inputs[0], of `width` values, to a value of its own."""

    kind: Literal["value-norm"]
    width: int
    norm: NormKind
    eps: float
    weights: NormVectors | None


class LatentAppendOperation(CacheUser):
    """Norms and rotates the latent vectors of new tokens, and keeps them: inputs are queries, of `plain` +
    `rotated` values a head, and rows of head_dim values, a latent vector and `rotated` ones. `values` are None.

    Queries are multiplied by `factor`: those values that do not turn in place, the others to the last of every head's
    head_dim in `output`, whose first a head's own matrix fills."""

    kind: Literal["latent-append"]
    plain: int
    rotated: int
    factor: float
    pairs: Literal["half", "interleaved"]
    """Whether dimensions i and i + rotated / 2 turn together, or 2i and 2i + 1."""
    norm: NormKind
    eps: float
    weights: NormVectors | None
    cos: Vector | None
    """f32 (context, rotated / 2); None: nothing turns."""
    sin: Vector | None


class GroupedOperation(Named):
    """Multiplies the first values of every of `groups` equal parts of inputs[0] by a matrix of its own, to the first
    values of the same part of `output`: rows of the matrices follow each other, a multiple of 16 for each.

    `taken`, `given`: the values of a part, of which the matrix reads its columns and leaves its rows."""

    kind: Literal["grouped"]
    groups: int
    taken: int
    given: int
    matrix: Linear | None


AnyOperation: TypeAlias = (
    EmbeddingOperation
    | LayerTableOperation
    | LayerInputsOperation
    | NormOperation
    | NormSumOperation
    | LinearOperation
    | HeadOperation
    | AppendOperation
    | AttentionOperation
    | DividedAttention
    | RouterOperation
    | ExpertsOperation
    | MemberOperation
    | CombineOperation
    | RowGateOperation
    | ValueNormOperation
    | LatentAppendOperation
    | GroupedOperation
    | ConvolutionOperation
    | RecurrenceOperation
    | GatedNormOperation
)
