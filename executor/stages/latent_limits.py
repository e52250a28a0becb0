"""Refuses latent attention that stages do not compute."""

from collections.abc import Iterator

from helmsman.lowering.operation import PANEL
from helmsman.schemas.blocks.attention import LatentAttention
from helmsman.schemas.blocks.positions import YarnScaling


def latent_limits(op: LatentAttention) -> Iterator[str]:
    """Yield what of it has no kernels."""
    if op.copies is not None:
        yield "a latent cache of which several devices each have a copy"
    if op.indexer is not None:
        yield "latent attention to tokens that an indexer chooses"
    if op.latent % PANEL or op.value_dim % PANEL:
        yield f"heads of {op.value_dim} values from latent vectors of {op.latent}, which are no whole panels of {PANEL}"
    if op.norm.offset or not op.norm.weight or op.norm.bias:
        yield "norms of latent vectors without weights, around zero or with biases"
    rope = op.rope
    if rope is not None and (rope.rotary_dim != op.rope_dim or not isinstance(rope.scaling, YarnScaling | None)):
        yield "a rotation of some of the dimensions that all heads share, or scaled in another way than YaRN's"
