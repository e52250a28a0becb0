"""Refuses mixers with a state that stages do not compute."""

from collections.abc import Iterator

from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace

MOST_TAPS = 4
"""Tokens that kernels of convolutions see."""


def recurrent_limits(op: DeltaRule | StateSpace | ShortConvolution) -> Iterator[str]:
    """Yield what of it has no kernels."""
    if op.taps > MOST_TAPS:
        yield f"a convolution over {op.taps} tokens, more than {MOST_TAPS}"
    if isinstance(op, ShortConvolution):
        return
    if op.norm is not None and (op.norm.kind != "rms" or op.norm.offset or not op.norm.weight or op.norm.bias):
        yield "a gated norm of another kind than rms with weights"
