"""Quantising rows to the blocks of GGUF files, row-major, and which blocks the matrices of a file are kept in."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from helmsman.executor._kernels import quantise as quantise_rows
from helmsman.lowering.named_mixes import named_mix
from helmsman.lowering.stored_names import StoredTensor
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import BLOCKS, FORMATS, Blocks, FileFormat, Format, Micro, block_of, size_of
from helmsman.schemas.model import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_MULTIPLIED: tuple[Format | Blocks | Micro, ...] = (*FORMATS, *BLOCKS, "mxfp4")
"""The formats that matrices of such files have."""


def quantise(values: "NDArray[np.float32]", fmt: Blocks | Micro) -> "NDArray[np.uint8]":
    """f32 (rows, columns), columns whole blocks, to uint8 (rows, bytes per row)."""
    import numpy as np

    rows, columns = values.shape
    result = np.empty((rows, size_of(columns, fmt)), np.uint8)
    quantise_rows(np.ascontiguousarray(values, np.float32).data, result.data, fmt, rows, columns)
    return result


def formats_of(model: Model, stored: Iterable[StoredTensor], fmt: FileFormat) -> dict[str, Format | Blocks | Micro]:
    """By name in the file, the format of every tensor: vectors and routers are f32.

    Raises UsageError for a matrix of which no whole blocks can be made."""
    return {
        item.name: _format_of(model, item, fmt) if item.parts[0].packed and not item.parts[0].exact else "f32"
        for item in stored
    }


def _format_of(model: Model, item: StoredTensor, fmt: FileFormat) -> Format | Blocks | Micro:
    if fmt != "q4_k_m" and fmt != "mxfp4":
        _check_blocks(item, fmt)
        return fmt
    first = item.parts[0]
    mixed = named_mix(model, fmt)[first.name, first.layer]
    return next(kept for kept in _MULTIPLIED if kept == mixed)


def _check_blocks(item: StoredTensor, fmt: Format | Blocks | Micro) -> None:
    if item.shape[-1] % block_of(fmt):
        message = f"{item.name} has rows of {item.shape[-1]} values, and blocks have {block_of(fmt)}"
        raise UsageError(message, field="format", value=fmt, remedy="use `format` f16")
