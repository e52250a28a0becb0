"""The formats that a model's file has: every tensor of a GGUF file as it is kept there."""

from pathlib import Path

from helmsman.hwdb.gguf_files import is_gguf
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import STORED_FORMATS, StoredFormat
from helmsman.schemas.model import Model

NATIVE = "native"
"""The format of weights that stands for those of the file."""

DEFAULT: StoredFormat = "f16"
"""The format of weights where neither the user nor the file says one."""


def resolve_formats(wanted: StoredFormat | str | None, name: str, model: Model) -> tuple[StoredFormat, Formats]:
    """Return the format of most weights, and what each tensor is kept in where a GGUF file is to be planned as it is,
    else nothing; `wanted`: a format, `native`, or None; `name`: how the model was named.

    Raises UsageError for native formats of anything but GGUF files, BadInputError for types that are not read."""
    chosen = next((each for each in STORED_FORMATS if each == wanted), None)
    if chosen is not None:
        return chosen, {}
    if not is_gguf(Path(name)):
        if wanted == NATIVE:
            raise UsageError("only GGUF files say it", field="format", value=NATIVE, remedy="name a format")
        return DEFAULT, {}
    from helmsman.planner.mixed_formats import format_sizes

    formats = file_formats(Path(name), model)
    most = next(iter(format_sizes(model, formats)))
    return most, formats if len(set(formats.values())) > 1 else {}


def file_formats(path: Path, model: Model) -> Formats:
    """Return the formats of the matrices of a GGUF file."""
    from helmsman.hwdb.gguf_files import gguf_places
    from helmsman.lowering.stored_names import gguf_name
    from helmsman.lowering.tensors import tensors

    places, formats = gguf_places(path), dict[tuple[str, int | None], StoredFormat]()
    for tensor in tensors(model):
        if len(tensor.shape) == 2 and tensor.tied_to is None:
            name = gguf_name(model.family, tensor)
            kept = places[name].type.name if name in places else None
            fmt = next((each for each in STORED_FORMATS if each == kept), None)
            if fmt is None:
                remedy = "quantise the model again, or name a `format` that it is to become"
                raise BadInputError("a type that is not read", file=str(path), field=name, value=kept, remedy=remedy)
            formats[tensor.name, tensor.layer] = fmt
    return formats
