"""Mixtures of formats that have names, as llama.cpp's files have them: which format each matrix is kept in."""

from helmsman.lowering.tensor import Tensor
from helmsman.schemas.formats import Blocks, block_of
from helmsman.schemas.model import Model

MORE_BITS = ("v", "down", "experts_down", "shared_down")
"""Projections that lose most by four bits."""


def q4_k_m(model: Model, tensor: Tensor) -> Blocks:
    """Return the format of a matrix in `q4_k_m`: 4 bits, 6 where llama.cpp's files of that name have them, and 8 for
    rows that are no whole blocks of either."""
    chosen: Blocks = "q6_k" if _more_bits(model, tensor) else "q4_k"
    return chosen if tensor.shape[-1] % block_of(chosen) == 0 else "q8_0"


def _more_bits(model: Model, tensor: Tensor) -> bool:
    """As llama.cpp chooses them: the output, and in the first and the last eighth of the blocks and every third of the
    others the projections of values and `down`."""
    if tensor.layer is None:
        return tensor.op == "head" or model.head.tied
    layer, eighth = tensor.layer, model.layers // 8
    return tensor.op in MORE_BITS and (layer < eighth or layer >= 7 * model.layers // 8 or (layer - eighth) % 3 == 2)
