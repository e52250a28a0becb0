"""Describes mixers that keep a state of fixed size per sequence: delta rules, state spaces, short convolutions."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Frozen, Positive, mistake
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.numbers import Dimension, HeadCount, Scale

Taps = Annotated[int, Field(ge=2, le=64)]
"""Tokens that a convolution over time sees: the token itself and those before it."""


class DeltaRule(Frozen):
    """A gated delta rule: a matrix of `key_dim` x `value_dim` per value head is corrected by every token.

    `decay`: one number per head (Qwen3-Next), or one per dimension of the keys (Kimi), through `rank` values. `norm`:
    of a head's outcome, which a gate then multiplies by its `gate`."""

    kind: Literal["delta-rule"] = "delta-rule"
    key_heads: HeadCount
    value_heads: HeadCount
    key_dim: HeadCount
    value_dim: HeadCount
    taps: Taps
    decay: Literal["head", "dimension"] = "head"
    rank: Dimension | None = None
    norm: Norm
    gate: Literal["silu", "sigmoid"] = "silu"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.value_heads % self.key_heads:
            message = f"value_heads ({self.value_heads}) must be a multiple of key_heads ({self.key_heads})"
            raise mistake(message, "correct one of them", "value_heads")
        if (self.decay == "dimension") != (self.rank is not None):
            raise mistake("a decay per dimension has a rank, one per head none", "correct one of them", "rank")
        return self

    @property
    def channels(self) -> int:
        """Return values of a token that the convolution sees: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_elements(self) -> int:
        """Return numbers of a sequence's state."""
        return self.value_heads * self.key_dim * self.value_dim


class StateSpace(Frozen):
    """A Mamba-2 mixer: `heads` heads of `head_dim` channels, each with a state of `state` values per channel.

    Inputs and outputs of the states are shared by the heads of each of `groups` groups. `norm`: of every group's
    outcome, before or after the gate; absent: the gate alone. `scales`: by what gate, input, B, C and time step are
    multiplied (Falcon-H1)."""

    kind: Literal["state-space"] = "state-space"
    heads: HeadCount
    head_dim: HeadCount
    state: Dimension
    groups: Count
    taps: Taps
    conv_bias: bool = True
    bias: bool = False
    norm: Norm | None = None
    norm_first: bool = False
    scales: tuple[Scale, Scale, Scale, Scale, Scale] | None = None
    longest_step: Positive | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.groups:
            message = f"heads ({self.heads}) must be a multiple of groups ({self.groups})"
            raise mistake(message, "correct one of them", "groups")
        return self

    @property
    def inner(self) -> int:
        """Return channels of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Return values of a token that the convolution sees: input, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def state_elements(self) -> int:
        """Return numbers of a sequence's state."""
        return self.inner * self.state


class ShortConvolution(Frozen):
    """A gated convolution over a few tokens (LFM2): C * conv(B * x), where B, C and x are projections."""

    kind: Literal["short-convolution"] = "short-convolution"
    taps: Taps
    bias: bool = False
