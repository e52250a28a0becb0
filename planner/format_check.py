"""Whether a model's matrices and caches divide into the blocks of a format, and which format would do."""

from typing import NamedTuple

from helmsman.lowering.tensors import Tensor, tensors
from helmsman.schemas.formats import KvFormat, StoredFormat, block_of
from helmsman.schemas.model import Model

_INSTEAD: dict[StoredFormat, tuple[StoredFormat, ...]] = {
    "q4_k": ("q4_0", "q4"),
    "q4_0": ("q4",),
    "q6_k": ("q8_0", "q8"),
    "q8_0": ("q8",),
}
"""What is nearest to a format and has shorter blocks; the last takes any number of columns."""


class Misfit(NamedTuple):
    """What does not divide into blocks, in words, and the nearest format that fits all of it."""

    message: str
    remedy: StoredFormat


def weights_misfit(model: Model, fmt: StoredFormat) -> Misfit | None:
    """The first matrix of `model` whose columns are not whole blocks of `fmt`."""
    tensor = next((each for each in tensors(model) if not fits(each, fmt)), None)
    if tensor is None:
        return None
    remedy = next(other for other in _INSTEAD[fmt] if all(fits(each, other) for each in tensors(model)))
    return Misfit(_undivided(tensor, fmt), remedy)


def matrix_misfit(tensor: Tensor, fmt: StoredFormat) -> Misfit | None:
    """The same of one tensor."""
    if fits(tensor, fmt):
        return None
    return Misfit(_undivided(tensor, fmt), next(other for other in _INSTEAD[fmt] if fits(tensor, other)))


def cache_misfit(model: Model, fmt: KvFormat) -> Misfit | None:
    """A head's row that is not whole groups of `fmt`."""
    if model.head_dim % block_of(fmt) == 0:
        return None
    return Misfit(f"heads of {model.name} have {model.head_dim} values, {fmt} has groups of {block_of(fmt)}", "f16")


def fits(tensor: Tensor, fmt: StoredFormat) -> bool:
    """Whether a tensor can be kept where weights are in `fmt`."""
    return not tensor.quantised or tensor.shape[1] % block_of(fmt) == 0


def _undivided(tensor: Tensor, fmt: StoredFormat) -> str:
    place = tensor.name if tensor.layer is None else f"{tensor.name} of block {tensor.layer}"
    return f"{place} has {tensor.shape[1]} columns, and blocks of {fmt} are of {block_of(fmt)}"
