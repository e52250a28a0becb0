"""What quantised checkpoints store in place of a matrix: packed values, with scales, zero points and orders beside."""

from collections.abc import Iterable, Mapping

_PACKED = {".qweight": ".weight", ".weight_packed": ".weight", "_blocks": ""}
"""Ends of the names of packed values, and what the name of the matrix has there (GPTQ and AWQ, compressed-tensors,
MXFP4)."""

_BESIDE = {
    ".qzeros": ".weight",
    ".scales": ".weight",
    ".g_idx": ".weight",
    ".weight_scale": ".weight",
    ".weight_scale_2": ".weight",
    ".weight_scale_inv": ".weight",
    ".weight_zero_point": ".weight",
    ".weight_g_idx": ".weight",
    ".weight_shape": ".weight",
    ".weight_global_scale": ".weight",
    ".input_scale": ".weight",
    ".input_global_scale": ".weight",
    ".scale": ".weight",
    "_scales": "",
    "_weight_scale": "",
    "_weight_scale_2": "",
    "_weight_scale_inv": "",
    "_input_scale": "",
}
"""Ends of the names of what stands beside values; with an underscore those of stacked experts."""


def matrix_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return for every name of a checkpoint that of the matrix that it is part of, its own where it is none's."""
    known = set(names)
    packed = {name: replaced for name in known if (replaced := _replaced(name, _PACKED)) is not None}
    matrices = known | set(packed.values())
    result = {}
    for name in known:
        beside = _replaced(name, _BESIDE)
        result[name] = packed.get(name) or (beside if beside in matrices and beside != name else None) or name
    return result


def _replaced(name: str, ends: Mapping[str, str]) -> str | None:
    for end, replacement in ends.items():
        if name.endswith(end):
            return name.removesuffix(end) + replacement
    return None
