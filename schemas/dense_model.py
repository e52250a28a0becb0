"""DenseModel: a decoder of equal blocks by its dimensions alone, as documents of version 1 described every model."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Document, Fraction, Index, Name, mistake, version
from helmsman.schemas.blocks.numbers import Dimension
from helmsman.schemas.blocks.positions import LearnedPositions, LongRope, Rope
from helmsman.schemas.formats import Format

Family = Literal["gpt2", "gpt_neox", "llama", "mistral", "opt", "phi3", "qwen2", "qwen3"]
DenseActivation = Literal["silu", "relu", "gelu", "gelu_tanh"]


class DenseModel(Document):
    """A decoder whose blocks are all alike: full attention, then one dense network.

    Shapes: hidden H; `heads` query and `kv_heads` key/value heads of `head_dim`; FFN width `ffn`."""

    schema_id: Literal["helm.model/1"] = version("helm.model/1")
    name: Name
    family: Family
    layers: Annotated[int, Field(ge=1, le=1024)]
    hidden: Dimension
    heads: Annotated[int, Field(ge=1, le=4096)]
    kv_heads: Annotated[int, Field(ge=1, le=4096)]
    head_dim: Annotated[int, Field(ge=1, le=4096)]
    ffn: Dimension
    vocab: Dimension
    max_context: Annotated[int, Field(ge=1, le=2**28)]
    activation: DenseActivation
    gated: bool
    norm: Literal["rms", "layer"]
    norm_eps: Fraction
    position: Annotated[Rope | LearnedPositions, Field(discriminator="kind")]
    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False
    tied_embeddings: bool = False
    sliding_window: Count | None = Field(default=None, description="tokens; absent when disabled")
    native_format: Format = "bf16"
    eos: Annotated[tuple[Index, ...], Field(max_length=64)] = ()
    source: Name = Field(default="unknown", description="where the dimensions come from")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.kv_heads:
            message = f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})"
            raise mistake(message, "correct one of them", "kv_heads")
        if isinstance(self.position, Rope):
            _check_rope(self.position, self.head_dim)
        return self

    @property
    def q_width(self) -> int:
        """Return columns of the concatenated query heads (E-HELM-09: not always H)."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Return columns of the concatenated key (or value) heads."""
        return self.kv_heads * self.head_dim


def _check_rope(rope: Rope, head_dim: int) -> None:
    if rope.rotary_dim > head_dim or rope.rotary_dim % 2:
        message = f"rotary_dim ({rope.rotary_dim}) must be even and at most head_dim ({head_dim})"
        raise mistake(message, "correct one of them", "position.rotary_dim")
    if isinstance(rope.scaling, LongRope):
        lengths = {len(rope.scaling.short_factor), len(rope.scaling.long_factor)}
        needed = rope.rotary_dim // 2
        if lengths != {needed}:
            message = f"longrope needs {needed} factors, got {sorted(lengths)}"
            raise mistake(message, "give one factor per frequency", "position.scaling")
