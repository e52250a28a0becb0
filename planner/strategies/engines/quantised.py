"""Formats of a checkpoint that vLLM loads by its `--quantization`: the matrices of blocks, or experts alone; embedding,
head and routers stay in plain numbers, as released files have them."""

from typing import Literal, get_args

from helmsman.lowering.tensors import tensors
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat
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


def quantised_formats(model: Model, method: Quantisation, plain: StoredFormat) -> tuple[StoredFormat, Formats]:
    """Return the format of most weights, and those of tensors that are kept in another, some in `plain` numbers. Raises
    UsageError for MXFP4 without experts."""
    fmt, matrices = _FORMATS[method], [tensor for tensor in tensors(model) if len(tensor.shape) - tensor.stacked > 1]
    if method != "mxfp4":
        kept = (tensor for tensor in matrices if tensor.layer is None or tensor.op == "router")
        return fmt, {(tensor.name, tensor.layer): plain for tensor in kept}
    experts = [tensor for tensor in matrices if tensor.stacked]
    if not experts:
        remedy = "use fp8, awq or gptq"
        raise UsageError(f"{model.name} has no experts", field="quantization", value=method, remedy=remedy)
    return plain, {(tensor.name, tensor.layer): fmt for tensor in experts}
