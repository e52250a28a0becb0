"""The random weights of a model as Hugging Face's checkpoints would hold them, drawn tensor by tensor."""

import re

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.checkpoint.random_values import value_chunks
from helmsman.executor.checkpoint.weights_init import recipe
from helmsman.executor.checkpoint.write import latent_values, stream_name
from helmsman.lowering.stored_names import StoredTensor, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.blocks.recurrent import DeltaRule
from helmsman.schemas.model import Model

Floats = NDArray[np.float32]


def drawn_state(model: Model, seed: int) -> dict[str, Floats]:
    """Return f32 values by name; experts of a layer are in one tensor, whose name leaves their numbers out."""
    result = dict[str, Floats]()
    for stored in stored_tensors(model):
        name = re.sub(r"experts\.\d+\.(\w+)\.weight", r"experts.\1", stored.name)
        if name not in result:
            parts = [drawn(model, part, seed) for part in stored.parts]
            if stored.layout == "latent":
                result[name] = latent_values(model, stored, "f32", seed)
            else:
                result[name] = _joined(model, stored, parts) if stored.expert is None else parts[0]
    return result


def drawn(model: Model, tensor: Tensor, seed: int) -> Floats:
    """Return the values of one of our tensors."""
    rows, columns = (*(tensor.shape[1:] if tensor.stacked else tensor.shape), 1)[:2]
    made = [
        chunk
        for expert in (range(tensor.shape[0]) if tensor.stacked else (None,))
        for chunk in value_chunks(recipe(model, tensor), rows, columns, "f32", seed, stream_name(tensor, expert))
    ]
    return np.concatenate(made).reshape(tensor.shape)


def _joined(model: Model, stored: StoredTensor, parts: list[Floats]) -> Floats:
    if stored.pieces > 1:
        return parts[0].reshape(stored.pieces, *stored.shape)[stored.piece]
    if stored.layout != "heads":
        return np.concatenate(parts, int(stored.parts[0].stacked)).reshape(stored.shape)
    delta = next(body.op for body in model.blocks[0].bodies if isinstance(body.op, DeltaRule))
    if stored.parts[0].op == "delta_in":
        keyed = delta.key_heads * delta.key_dim
        parts = [*np.split(parts[0], [keyed, 2 * keyed]), *parts[1:]]
    by_key_head = [part.reshape(delta.key_heads, -1, part.shape[1]) for part in parts]
    return np.concatenate(by_key_head, 1).reshape(stored.shape)
