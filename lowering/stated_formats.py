"""The formats of a model's matrices as its config states them, where there are no files to read them from."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from helmsman.lowering.stored_names import TensorKey, file_name
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.native_quantisation import NativeQuantisation, StoredModules

_FLOATS: Mapping[tuple[int, int | None, int], StoredFormat] = {
    (8, 128, 128): "fp8_block",
    (8, None, 1): "fp8",
    (4, 32, 1): "mxfp4",
    (4, 16, 1): "nvfp4",
}
"""Formats of floating-point numbers by bits, values of a row that share a scale, and rows that do."""

_INTEGERS: Mapping[tuple[int, int | None], StoredFormat] = {
    (4, 32): "int4_g32",
    (4, 64): "int4_g64",
    (4, 128): "int4_g128",
}
_WITH_ZERO_POINTS: Mapping[tuple[int, int | None], StoredFormat] = {
    (4, 32): "uint4_g32",
    (4, 64): "uint4_g64",
    (4, 128): "uint4_g128",
    (8, 128): "uint8_g128",
}
"""The same of whole numbers; those of AWQ and GPTQ have zero points beside their scales."""

_TABLES = ("embedding", "head")
"""Operations whose matrices stay plain unless a config names them."""

_EXPERTS = "model.layers.*.mlp.experts"
"""The name of all experts in configs, whatever files call each of them."""


def stated_formats(model: Model) -> dict[TensorKey, StoredFormat]:
    """Return the formats of a model's matrices; nothing where its config says nothing of them.

    Raises BadInputError for numbers of a kind that is not planned."""
    stated = model.native_quantisation
    if stated is None:
        return {}
    return {
        (tensor.name, tensor.layer): _format(model, stated, tensor)
        for tensor in tensors(model)
        if len(tensor.shape) > 1 and tensor.tied_to is None
    }


def _format(model: Model, stated: NativeQuantisation, tensor: Tensor) -> StoredFormat:
    if not tensor.quantised or not tensor.name.endswith(".weight"):
        return model.native_format
    name = file_name(model.family, tensor).removesuffix(".weight")
    if any(_names(pattern, name, tensor) for pattern in stated.kept):
        return model.native_format
    named = [part for part in stated.stored if any(_names(pattern, name, tensor) for pattern in part.modules)]
    rest = [part for part in stated.stored if not part.modules and tensor.op not in _TABLES]
    meant = (*named, *rest)
    return _of_numbers(stated, meant[0]) if meant else model.native_format


def _names(pattern: str, name: str, tensor: Tensor) -> bool:
    """Whether a config's name of modules means the one called `name`."""
    if pattern.startswith("re:"):
        return re.match(pattern.removeprefix("re:"), name) is not None
    if pattern == _EXPERTS:
        return tensor.stacked
    return pattern in name.split(".") or fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _of_numbers(stated: NativeQuantisation, part: StoredModules) -> StoredFormat:
    whole = _WITH_ZERO_POINTS if stated.method in ("awq", "gptq") else _INTEGERS
    if part.values == "float":
        fmt = _FLOATS.get((part.bits, part.group, part.rows))
    else:
        fmt = whole.get((part.bits, part.group))
    if fmt is None:
        message, remedy = "states numbers that are not planned", "name a `format` that it is to become"
        value = f"{part.values} {part.bits} bits, {part.group or 'all'} together"
        raise BadInputError(message, field="model.native_quantisation", value=value, remedy=remedy)
    return fmt
