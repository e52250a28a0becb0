"""Describes attention over a cache: grouped queries, latent keys and values, compressed keys and values."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Frozen, Index, Positive, mistake
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.numbers import Context, Dimension, HeadCount, Scale
from helmsman.schemas.blocks.positions import Rope


class QueryTemperature(Frozen):
    """Queries grow with their position: by 1 + scale * ln(1 + floor((position + 1) / floor)) (Llama 4)."""

    floor: Count
    scale: Positive


class Attention(Frozen):
    """Grouped-query attention: `heads` query heads share `kv_heads` keys of `head_dim` and values of `value_dim`.

    `scale`: by what scores are multiplied. `values`: keys: the keys before their norm, under a norm without weights,
    are the values. `window`: a token sees itself and the window - 1 tokens before; `chunk`: what lies in its own chunk
    of so many positions. `cache_of`: the layer whose keys and values it reads, as it has none of its own. `sinks`: a
    logit per head joins the softmax; `softcap`: scores become softcap * tanh(score / softcap); `output_gate`: queries
    bring a gate whose sigmoid multiplies the outcome; `key_scale`: by what keys are multiplied; `clip`: to which
    magnitude queries, keys and values are cut."""

    kind: Literal["attention"] = "attention"
    heads: HeadCount
    kv_heads: HeadCount
    head_dim: HeadCount
    value_dim: HeadCount
    scale: Positive
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: QueryKeyNorm | None = None
    value_norm: Norm | None = None
    values: Literal["own", "keys"] = "own"
    rope: Rope | None = None
    window: Context | None = None
    chunk: Context | None = None
    cache_of: Index | None = None
    sinks: bool = False
    softcap: Positive | None = None
    output_gate: bool = False
    query_temperature: QueryTemperature | None = None
    key_scale: Scale = 1.0
    clip: Positive | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.kv_heads:
            message = f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})"
            raise mistake(message, "correct one of them", "kv_heads")
        if self.rope is not None and (self.rope.rotary_dim > self.head_dim or self.rope.rotary_dim % 2):
            message = f"rotary_dim ({self.rope.rotary_dim}) must be even and at most head_dim ({self.head_dim})"
            raise mistake(message, "correct one of them", "rope.rotary_dim")
        if self.window is not None and self.chunk is not None:
            raise mistake("a window and a chunk exclude each other", "leave one out", "chunk", self.chunk)
        return self

    @property
    def q_width(self) -> int:
        """Return values of all query heads of a token."""
        return self.heads * self.head_dim

    @property
    def k_width(self) -> int:
        """Return values of all key heads of a token."""
        return self.kv_heads * self.head_dim

    @property
    def v_width(self) -> int:
        """Return values of all value heads of a token."""
        return self.kv_heads * self.value_dim

    @property
    def out_width(self) -> int:
        """Return values that go into the output projection."""
        return self.heads * self.value_dim

    @property
    def reach(self) -> int | None:
        """Return tokens of a sequence that its cache holds at most; None: all."""
        return self.window if self.chunk is None else self.chunk


class TokenIndexer(Frozen):
    """Chooses the `top_k` tokens that latent attention sees, by keys of its own (DeepSeek sparse attention).

    `selects`: last: takes what the last layer with an indexer of its own chose, and has neither weights nor keys."""

    heads: HeadCount
    head_dim: HeadCount
    top_k: Count
    pairs: Literal["half", "interleaved"] = "half"
    selects: Literal["own", "last"] = "own"


class LatentAttention(Frozen):
    """Attention over latent vectors of `latent` values and `rope_dim` rotated ones that all heads share (MLA).

    A head compares `nope_dim` + `rope_dim` values and has outcomes of `value_dim`. `query_rank`: queries come through
    as many values; absent: straight from the hidden state. `norm`: of these and of latent vectors. `rope` absent: the
    rotated part keeps its values. `copies`: of the cache, where devices that divide the heads each have all of it."""

    kind: Literal["latent-attention"] = "latent-attention"
    heads: HeadCount
    nope_dim: HeadCount
    rope_dim: HeadCount
    value_dim: HeadCount
    latent: Dimension
    query_rank: Dimension | None = None
    scale: Positive
    norm: Norm
    rope: Rope | None = None
    indexer: TokenIndexer | None = None
    copies: Count | None = None

    @property
    def cached_width(self) -> int:
        """Return values of a token that a copy of the cache holds."""
        return self.latent + self.rope_dim

    @property
    def cache_copies(self) -> int:
        """Return how many copies of the cache there are, one where no devices divide the heads."""
        return self.copies or 1

    @property
    def compared(self) -> int:
        """Return values of a query head."""
        return self.nope_dim + self.rope_dim


class EntryIndexer(Frozen):
    """Chooses the `top_k` pooled entries that compressed attention sees, by pooled keys of its own."""

    heads: HeadCount
    head_dim: HeadCount
    top_k: Count


class CompressedAttention(Frozen):
    """Attention over a window of tokens and over entries that each pool `ratio` tokens (DeepSeek V4).

    Keys and values are one vector of `head_dim`. `ratio` absent: the window alone. Queries come through `query_rank`
    values; the outcome leaves in `out_groups` groups through `out_rank` values each."""

    kind: Literal["compressed-attention"] = "compressed-attention"
    heads: HeadCount
    head_dim: HeadCount
    query_rank: Dimension
    out_groups: Count
    out_rank: Dimension
    scale: Positive
    norm: Norm
    rope: Rope
    window: Context
    ratio: Annotated[int, Field(ge=2, le=2**20)] | None = None
    overlap: bool = False
    indexer: EntryIndexer | None = None
    sinks: bool = True
