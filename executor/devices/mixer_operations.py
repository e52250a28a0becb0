"""The specifications of operations of mixers with states: delta rules, state spaces, convolutions over time."""

from typing import Literal

from helmsman.executor.devices.named_operation import Named
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.tensors import Vector


class ConvolutionOperation(Named):
    """Convolves every channel over the last `taps` tokens, in place: columns [at, at + channels) of inputs[0].

    `gates`: inputs[0] are B, C and x one after the other, and C * conv(B * x) is left in `output`."""

    kind: Literal["convolution"]
    width: int
    """Of inputs[0]."""
    channels: int
    at: int
    taps: int
    silu: bool
    gates: bool
    weights: Vector | None
    """f32 (taps, channels), the token itself last."""
    bias: Vector | None
    """f32 (channels,)."""
    factors: Vector | None
    """f32 (width,): multiply inputs[0] first."""
    states: Buffer | None
    """f32 (sequences, taps - 1, channels): what a convolution sees again of every sequence."""
    snapshots: int
    """Of the first so many tokens of a pass states are kept too: rows (1 + token) * sequences on, of a batch alone."""


class RecurrenceOperation(Named):
    """Passes every token through the state of its sequence, a matrix of (key_dim, value_dim) for each value head:
    S = exp(decay) S + k (rate v)^T, outcome S^T q; a delta rule `corrects` v by S^T k first. `normalised`: k and q have
    length one before q is multiplied by `query_scale`.

    Columns of inputs[0], `width` wide: where `queries`, `keys` and `values` begin, of a state space also `steps`, which
    become rates and give decays, left in the value `decays`. Of a delta rule decays and rates are computed of inputs[1]
    and inputs[2], in place."""

    kind: Literal["recurrence"]
    decays: str | None
    width: int
    key_heads: int
    value_heads: int
    tiled: bool
    """Whether key head j serves value heads j, j + key_heads, ...; else as many that follow each other."""
    key_dim: int
    value_dim: int
    queries: int
    keys: int
    values: int
    steps: int | None
    corrects: bool
    normalised: bool
    per_dimension: bool
    """Whether decays are one number per dimension of keys, not one per head."""
    query_scale: float
    longest: float | None
    """The longest time step."""
    offsets: Vector | None
    """f32, as many as decays: added before the softplus."""
    rates: Vector | None
    """f32 (value_heads,): logarithms of how fast states decay."""
    passing: Vector | None
    """f32 (value_heads,): how much of values joins the outcome."""
    states: Buffer | None
    """f32 (sequences, value_heads, key_dim, value_dim)."""
    snapshots: int
    """As a convolution has them."""


class GatedNormOperation(Named):
    """Norms `groups` equal parts of every row of inputs[0], of `width` values, and multiplies by what becomes of
    columns [at, at + width) of inputs[1]; in place."""

    kind: Literal["gated-norm"]
    width: int
    gate_width: int
    """Of inputs[1]."""
    at: int
    groups: int
    eps: float | None
    """None: gated alone."""
    weights: Vector | None
    """f32, as many as a part has values; `own_weights`: as a row has."""
    own_weights: bool
    gate_first: bool
    """Whether rows are gated before they are normed."""
    gate: Literal["silu", "sigmoid"]
