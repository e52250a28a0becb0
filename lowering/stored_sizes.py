"""How many bytes of a file are those of each of our tensors: its share of every tensor of the file that holds it."""

from collections.abc import Iterable, Mapping

from helmsman.lowering.stored_names import StoredTensor
from helmsman.lowering.tensor import Tensor

Place = tuple[str, int | None]
"""A tensor by its name and block."""


def tensor_bytes(stored: Iterable[StoredTensor], sizes: Mapping[str, int]) -> Mapping[Place, float]:
    """Return bytes by tensor; `sizes`: of the file's tensors by name, with what is stored beside their values. Tensors
    that the file lacks have none."""
    result: dict[Place, float] = {}
    for item in stored:
        for part in item.parts:
            size = sizes.get(item.name, 0) * item.share(part)
            result[place(part)] = result.get(place(part), 0.0) + size
    return result


def place(tensor: Tensor) -> Place:
    """Return by what a tensor is found."""
    return tensor.name, tensor.layer
