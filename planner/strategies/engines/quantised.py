"""Formats of a checkpoint that vLLM loads by its `--quantization`: the matrices of blocks, or experts alone; all others
stay in plain numbers, as released files have them: embedding, head, routers and vectors."""

from typing import Literal, get_args

from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat, is_plain
from helmsman.schemas.model import Model

Quantisation = Literal["fp8", "awq", "gptq", "nvfp4", "mxfp4"]
QUANTISATIONS: tuple[Quantisation, ...] = get_args(Quantisation)

_FORMATS: dict[Quantisation, StoredFormat] = {
    "fp8": "fp8",
    "awq": "uint4_g128",
    "gptq": "int4_g128",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
}
"""Of files that most people have: a scale (and of AWQ a zero point) for 128 values, blocks of 16 or 32 of others."""


def quantised_formats(
    model: Model, method: Quantisation, weights: StoredFormat, own: Formats
) -> tuple[StoredFormat, Formats]:
    """Return the format of most weights, and that of every tensor, of a checkpoint whose `weights` are plain numbers
    before, or what the method makes of them already; `own`: formats of its tensors, where it has several.

    Raises UsageError for a checkpoint in another method's formats, and for MXFP4 without experts."""
    for known in (weights, *own.values()):
        if not is_plain(known) and _kind(known) != _kind(_FORMATS[method]):
            problem = f"vLLM quantises plain weights by {method}, and these are in {known}"
            remedy = "leave it out, or use `format` bf16"
            raise UsageError(problem, field="quantization", value=method, remedy=remedy)
    if own and not is_plain(weights):
        return weights, own
    if method == "mxfp4" and not any(tensor.stacked for tensor in tensors(model)):
        remedy = "use fp8, awq or gptq"
        raise UsageError(f"{model.name} has no experts", field="quantization", value=method, remedy=remedy)
    fmt, plain = (_FORMATS[method], weights) if is_plain(weights) else (weights, model.native_format)
    formats = {
        (tensor.name, tensor.layer): fmt
        if _is_quantised(tensor, method)
        else own.get((tensor.name, tensor.layer), plain)
        for tensor in tensors(model)
    }
    return fmt, formats


def _kind(fmt: StoredFormat) -> str:
    """Return the numbers of a format, however many share a scale."""
    return fmt.partition("_")[0]


def _is_quantised(tensor: Tensor, method: Quantisation) -> bool:
    """Whether a method quantises a tensor."""
    if len(tensor.shape) - tensor.stacked < 2 or tensor.layer is None or tensor.op == "router":
        return False
    return tensor.stacked or method != "mxfp4"
