"""Whether a model's matrices and caches divide into the blocks of a format, and which format would do."""

from functools import lru_cache
from typing import Any, NamedTuple

from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.planner.request import PlanRequest
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import FORMAT_FACTS, KvFormat, StoredFormat, block_of, is_plain
from helmsman.schemas.model import Model


class Misfit(NamedTuple):
    """What does not divide into blocks, in words, and the nearest format that fits all of it."""

    message: str
    remedy: StoredFormat


@lru_cache(maxsize=256)
def weights_misfit(model: Model, fmt: StoredFormat) -> Misfit | None:
    """The first matrix of `model` whose columns are not whole blocks of `fmt`."""
    tensor = next((tensor for tensor in tensors(model) if not fits(tensor, fmt)), None)
    if tensor is None:
        return None
    remedy = next(other for other in FORMAT_FACTS[fmt].nearest if all(fits(tensor, other) for tensor in tensors(model)))
    return Misfit(_undivided(tensor, fmt), remedy)


def matrix_misfit(tensor: Tensor, fmt: StoredFormat) -> Misfit | None:
    """Return the misfit of one tensor."""
    if fits(tensor, fmt):
        return None
    return Misfit(_undivided(tensor, fmt), next(other for other in FORMAT_FACTS[fmt].nearest if fits(tensor, other)))


def cache_misfit(model: Model, fmt: KvFormat) -> Misfit | None:
    """Return the misfit of a cache whose heads' rows are not whole groups of `fmt`."""
    block = block_of(fmt)
    for letter in dict.fromkeys(model.pattern):
        cache = cache_of(model, model.pattern.index(letter))
        for width in () if cache is None else (cache.key_dim, cache.value_dim):
            if width % block:
                return Misfit(f"heads of {model.name} have {width} values, {fmt} has groups of {block}", "f16")
    return None


def fits(tensor: Tensor, fmt: StoredFormat) -> bool:
    """Whether a tensor can be kept where weights are in `fmt`."""
    return not tensor.quantised or tensor.shape[-1] % block_of(fmt) == 0


def _undivided(tensor: Tensor, fmt: StoredFormat) -> str:
    place = tensor.name if tensor.layer is None else f"{tensor.name} of block {tensor.layer}"
    return f"{place} has {tensor.shape[-1]} columns, and blocks of {fmt} are of {block_of(fmt)}"


def check_formats(request: PlanRequest[Any]) -> None:
    """Raise UsageError for formats that the model does not divide into, and for 4-bit groups of what is quantised as it
    is."""
    compress = getattr(request.options, "compress", "none")
    for name, fmt, what in (("format", request.weights, "weights"), ("kv_format", request.kv, "kv")):
        if not is_plain(fmt) and compress in (what, "all", "best"):
            raise UsageError(
                f"4-bit groups are expanded to f32, f16 or bf16, and `{name}` is {fmt}",
                field="compress",
                value=compress,
                remedy=f"leave `compress` out: {fmt} is quantised already; or use `{name}` f16",
            )
    if not request.formats:
        check_blocks(request.model, request.weights, request.kv)


def check_blocks(model: Model, weights: StoredFormat, kv: KvFormat) -> None:
    """Raise UsageError for a format into whose blocks a matrix, or a head's row, does not divide."""
    of_weights, of_cache = weights_misfit(model, weights), cache_misfit(model, kv)
    for name, fmt, misfit in (("format", weights, of_weights), ("kv_format", kv, of_cache)):
        if misfit is not None:
            raise UsageError(misfit.message, field=name, value=fmt, remedy=f"use `{name}` {misfit.remedy}")
