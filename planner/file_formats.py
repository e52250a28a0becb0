"""The formats that a model's file has: every tensor of a GGUF file as it is kept there."""

from pathlib import Path

from helmsman.hwdb.gguf_files import is_gguf
from helmsman.lowering.named_mixes import q4_k_m
from helmsman.lowering.tensors import tensors
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import STORED_FORMATS, StoredFormat, block_of
from helmsman.schemas.model import Model

NATIVE = "native"
"""The format of weights that stands for those of the file."""

MIX = "q4_k_m"
"""The mixture of formats in which most files of quantised models are."""

DEFAULT: StoredFormat = "f16"
"""The format of weights where neither the user nor the file says one."""


def resolve_formats(wanted: StoredFormat | str | None, name: str, model: Model) -> tuple[StoredFormat, Formats]:
    """Return the format of most weights, and what each tensor is kept in where a GGUF file is to be planned as it is,
    else nothing; `wanted`: a format, `native`, `q4_k_m`, or None; `name`: how the model was named.

    Raises UsageError for native formats of anything but GGUF files, BadInputError for types that are not read."""
    chosen = next((fmt for fmt in STORED_FORMATS if fmt == wanted), None)
    if chosen is not None:
        return chosen, {}
    if wanted == MIX:
        return "q4_k", _mixed(model)
    if not is_gguf(Path(name)):
        if wanted == NATIVE:
            raise UsageError("only GGUF files say it", field="format", value=NATIVE, remedy="name a format")
        return DEFAULT, {}
    from helmsman.planner.mixed_formats import format_sizes

    formats = file_formats(Path(name), model)
    most = next(iter(format_sizes(model, formats)))
    return most, formats if len(set(formats.values())) > 1 else {}


def _mixed(model: Model) -> Formats:
    """The formats of the matrices of a model in `q4_k_m`. Raises UsageError where rows are no whole blocks."""
    formats = dict[tuple[str, int | None], StoredFormat]()
    for tensor in tensors(model):
        if len(tensor.shape) == 2 and tensor.tied_to is None:
            fmt = q4_k_m(model, tensor)
            if tensor.shape[1] % block_of(fmt):
                message = f"rows of {tensor.name} have {tensor.shape[1]} values, and blocks have {block_of(fmt)}"
                raise UsageError(message, field="format", value=MIX, remedy="use `format` f16")
            formats[tensor.name, tensor.layer] = fmt
    return formats


def file_formats(path: Path, model: Model) -> Formats:
    """Return the formats of the matrices of a GGUF file."""
    from helmsman.hwdb.gguf_files import gguf_places
    from helmsman.lowering.stored_names import gguf_name

    places, formats = gguf_places(path), dict[tuple[str, int | None], StoredFormat]()
    for tensor in tensors(model):
        if len(tensor.shape) == 2 and tensor.tied_to is None:
            name = gguf_name(model.family, tensor)
            kept = places[name].type.name if name in places else None
            fmt = next((known for known in STORED_FORMATS if known == kept), None)
            if fmt is None:
                remedy = "quantise the model again, or name a `format` that it is to become"
                raise BadInputError("a type that is not read", file=str(path), field=name, value=kept, remedy=remedy)
            formats[tensor.name, tensor.layer] = fmt
    return formats
