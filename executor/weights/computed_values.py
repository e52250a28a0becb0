"""The values of vectors as operations read them: files keep some around zero, or in another order."""

import numpy as np
from numpy.typing import NDArray

from helmsman.lowering.draft_head import HEAD_NORMS
from helmsman.lowering.residuals import normed_residuals
from helmsman.lowering.tensor import CONVOLUTIONS, Tensor
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.model import Model

_QK_NORMS = ("q_norm", "k_norm")


def by_token(tensor: Tensor, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the taps (channels, taps) of a convolution over time as (taps, channels); other values as they are."""
    if tensor.op not in CONVOLUTIONS or len(tensor.shape) == 1:
        return values
    return np.ascontiguousarray(values.reshape(tensor.shape).T)


def around_one(model: Model, tensor: Tensor, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the weights of a norm that are stored around zero plus one; other values as they are."""
    norm = norm_of(model, tensor)
    return values + np.float32(1) if norm is not None and norm.offset else values


def norm_of(model: Model, tensor: Tensor) -> Norm | None:
    """Return the norm whose weights a tensor holds; None where it holds no norm's."""
    name, part = tensor.name.split(".")
    if part != "weight":
        return None
    if tensor.layer is None:
        return model.final if name == "final_norm" else None
    if name in _QK_NORMS:
        attention = model.attention(tensor.layer)
        return None if attention is None or attention.qk_norm is None else attention.qk_norm.norm
    if name in HEAD_NORMS:
        return model.drafts[0].norm
    named = (norm for residual in normed_residuals(model.blocks[tensor.layer]) for norm in residual.norms)
    return next((norm.norm for norm in named if norm.name == name), None)
