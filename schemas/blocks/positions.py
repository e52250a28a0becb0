"""Describes positions: rotary embeddings with their scalings, and learned tables."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Fraction, Frozen, Index, Positive
from helmsman.schemas.blocks.numbers import Dimension


class LinearScaling(Frozen):
    """Positions divided by `factor`."""

    kind: Literal["linear"] = "linear"
    factor: Positive


class Llama3Scaling(Frozen):
    """Llama 3.1's frequency-dependent scaling."""

    kind: Literal["llama3"] = "llama3"
    factor: Positive
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_context: Count


class LongRope(Frozen):
    """Phi-3's per-frequency factors: `short` up to the original context, `long` beyond it.

    `short_magnitude`, `long_magnitude`: by what sines and cosines are multiplied then; absent: by what the contexts
    give."""

    kind: Literal["longrope"] = "longrope"
    short_factor: Annotated[tuple[Positive, ...], Field(max_length=1024)]
    long_factor: Annotated[tuple[Positive, ...], Field(max_length=1024)]
    original_context: Count
    short_magnitude: Positive | None = None
    long_magnitude: Positive | None = None


class YarnScaling(Frozen):
    """Frequencies between those of the original context and those divided by `factor` (YaRN).

    `beta_fast`, `beta_slow`: turns within the original context between which the blend runs; `truncate`: whether its
    ends are rounded to whole dimensions; `magnitude`: by what sines and cosines are multiplied."""

    kind: Literal["yarn"] = "yarn"
    factor: Positive
    original_context: Count
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    truncate: bool = True
    magnitude: Positive = 1.0


class ProportionalScaling(Frozen):
    """Only the first `share` of the pairs turn; frequencies are those of all of them (Gemma 4)."""

    kind: Literal["proportional"] = "proportional"
    share: Fraction


RopeScaling = Annotated[
    LinearScaling | Llama3Scaling | LongRope | YarnScaling | ProportionalScaling, Field(discriminator="kind")
]


class Rope(Frozen):
    """Rotary positions: base `theta` over `rotary_dim` dimensions of a head.

    `at`: whether these are its first or its last; `pairs`: dimensions i and i + rotary_dim / 2 turn together, or 2i and
    2i + 1."""

    kind: Literal["rope"] = "rope"
    theta: Positive
    rotary_dim: Dimension
    at: Literal["leading", "trailing"] = "leading"
    pairs: Literal["half", "interleaved"] = "half"
    scaling: RopeScaling | None = None

    @property
    def turned(self) -> int:
        """Return how many dimensions of a head turn."""
        if isinstance(self.scaling, ProportionalScaling):
            return 2 * int(self.scaling.share * (self.rotary_dim // 2))
        return self.rotary_dim


class LearnedPositions(Frozen):
    """A table of max_context + `offset` position embeddings (OPT)."""

    kind: Literal["learned"] = "learned"
    offset: Index = 2
