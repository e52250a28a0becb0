"""Describes a block: residuals in order, each norms around one or more bodies."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Frozen, mistake
from helmsman.schemas.blocks.attention import Attention, CompressedAttention, LatentAttention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, PerLayerInput
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.numbers import Scale
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace

Mixer = Attention | LatentAttention | CompressedAttention | DeltaRule | StateSpace | ShortConvolution
"""What lets tokens of a sequence see each other."""

Network = FeedForward | Experts | PerLayerInput
"""What works on every token alone."""

BodyKind = Annotated[Mixer | Network, Field(discriminator="kind")]


class Body(Frozen):
    """One mixer or network of a residual: out_scale * post(op(in_scale * pre(x))); norms of its own, where bodies of
    one residual have different ones."""

    op: BodyKind
    pre: Norm | None = None
    post: Norm | None = None
    in_scale: Scale = 1.0
    out_scale: Scale = 1.0


class Residual(Frozen):
    """One sum: y = after(x + scale * post(sum of bodies(pre(x))))."""

    bodies: Annotated[tuple[Body, ...], Field(min_length=1, max_length=4)]
    pre: Norm | None = None
    post: Norm | None = None
    after: Norm | None = None
    scale: Scale = 1.0


class Block(Frozen):
    """A layout of layers: residuals in order. `letter`: how the model's pattern calls it; `scale`: by what the whole
    outcome is multiplied, a number or one that is stored with the weights."""

    letter: Annotated[str, Field(pattern=r"^[A-Za-z]$")]
    residuals: Annotated[tuple[Residual, ...], Field(min_length=1, max_length=8)]
    scale: Scale | Literal["stored"] = 1.0

    @model_validator(mode="after")
    def _one_of_a_kind(self) -> Self:
        kinds = [body.op.kind for body in self.bodies]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise mistake(f"two bodies are {kind}", "describe them as two layers", "residuals", kind)
        return self

    @property
    def bodies(self) -> tuple[Body, ...]:
        """Return all bodies, in order."""
        return tuple(body for residual in self.residuals for body in residual.bodies)

    @property
    def normed_after(self) -> bool:
        """Whether outcomes of bodies are normed before they join the residual stream."""
        return any(residual.post is not None for residual in self.residuals)

    @property
    def attention(self) -> Attention | None:
        """Return its grouped-query attention, where it has one."""
        return next((body.op for body in self.bodies if isinstance(body.op, Attention)), None)
