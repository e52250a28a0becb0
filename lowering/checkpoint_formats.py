"""The formats that best stand for the tensors of a Hugging Face checkpoint, by the bytes that each takes there."""

from collections.abc import Mapping
from pathlib import Path

from helmsman.hwdb.quantised_names import matrix_names
from helmsman.hwdb.safetensors_file import DTYPES, TensorEntry, checkpoint_entries
from helmsman.lowering.stored_names import StoredTensor, stored_tensors
from helmsman.lowering.stored_sizes import Place, place, tensor_bytes
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import SCALED_FORMATS, StoredFormat, size_of
from helmsman.schemas.model import Model

_INTEGERS: tuple[StoredFormat, ...] = tuple(fmt for fmt in SCALED_FORMATS if "int" in fmt)
_PACKED: tuple[StoredFormat, ...] = ("mxfp4", "nvfp4", "fp8")
_CANDIDATES: Mapping[str, tuple[StoredFormat, ...]] = {
    "F8_E4M3": ("fp8", "fp8_block"),
    "F8_E5M2": ("fp8", "fp8_block"),
    "I32": _INTEGERS,
    "I8": _PACKED,
    "U8": _PACKED,
}
"""Formats of weights that are no plain numbers, by the type in which a file has their values; integers of 8 bits take
the bytes of such floating-point numbers."""

_NOT_IN_BLOCKS = ("g_idx", "weight_shape", "global_scale", "input_scale")
"""Ends of the names of what belongs to a whole matrix, and not to its blocks: orders of columns, shapes, scales."""

MOST_APART = 0.02
"""By which share of its bytes a matrix may differ from a format."""


def checkpoint_formats(folder: Path, model: Model) -> Mapping[Place, StoredFormat]:
    """Return the formats of the matrices of the checkpoint in a directory, nothing where its weights are not there.

    Raises BadInputError for a tensor that is missing, or that takes as many bytes as no known format."""
    entries = checkpoint_entries(folder)
    if not entries:
        return {}
    sizes = _matrix_sizes(entries)
    stored = stored_tensors(model, present=frozenset(sizes))
    _check_present(folder, stored, sizes)
    blocks = {name: entry for name, entry in entries.items() if not name.endswith(_NOT_IN_BLOCKS)}
    taken, types = tensor_bytes(stored, _matrix_sizes(blocks)), _value_types(entries)
    formats = dict[Place, StoredFormat]()
    for item in stored:
        for part in item.parts:
            if len(part.shape) > 1:
                fmt = _format(types[item.name], part.elements, taken[place(part)])
                if fmt is None:
                    raise _unknown(folder, item, taken[place(part)])
                formats[place(part)] = fmt
    return formats


def checkpoint_bytes(folder: Path, model: Model) -> dict[Place, float]:
    """Return the bytes of every tensor of the checkpoint in a directory, with the scales beside its values."""
    sizes = _matrix_sizes(checkpoint_entries(folder))
    return dict(tensor_bytes(stored_tensors(model, present=frozenset(sizes)), sizes))


def _matrix_sizes(entries: Mapping[str, TensorEntry]) -> dict[str, int]:
    """Return bytes by matrix: its values, and what is stored beside them."""
    matrices = matrix_names(entries)
    sizes: dict[str, int] = {}
    for name, entry in entries.items():
        sizes[matrices[name]] = sizes.get(matrices[name], 0) + entry.end - entry.start
    return sizes


def _value_types(entries: Mapping[str, TensorEntry]) -> dict[str, str]:
    """Return the type of every matrix's values, which take the most bytes of what is stored for it."""
    matrices, largest = matrix_names(entries), dict[str, TensorEntry]()
    for name, entry in entries.items():
        matrix = matrices[name]
        if matrix not in largest or entry.end - entry.start > largest[matrix].end - largest[matrix].start:
            largest[matrix] = entry
    return {name: entry.dtype for name, entry in largest.items()}


def _check_present(folder: Path, stored: tuple[StoredTensor, ...], sizes: Mapping[str, int]) -> None:
    for item in stored:
        if item.name not in sizes:
            message, remedy = "missing", "use the config.json and the files of one model"
            raise BadInputError(message, file=str(folder), field=item.name, remedy=remedy)


def _format(dtype: str, elements: int, taken: float) -> StoredFormat | None:
    """Return the format of values of a type that take so many bytes with their scales; None where none is near."""
    if dtype in DTYPES:
        return DTYPES[dtype]
    candidates = _CANDIDATES.get(dtype, ())
    best = min(candidates, key=lambda fmt: abs(size_of(elements, fmt) - taken), default=None)
    return best if best is not None and abs(size_of(elements, best) - taken) <= MOST_APART * taken else None


def _unknown(folder: Path, item: StoredTensor, taken: float) -> BadInputError:
    message, remedy = "takes as many bytes as no format that is known", "name a `format` that it is to become"
    return BadInputError(message, file=str(folder), field=item.name, value=round(taken), remedy=remedy)
