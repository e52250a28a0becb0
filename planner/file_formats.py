"""The formats that a model's files have: every tensor as it is kept there."""

from pathlib import Path

from helmsman.hwdb.gguf_paths import is_gguf
from helmsman.hwdb.load_model import entry_name, model_file
from helmsman.hwdb.model_names import stated_format
from helmsman.lowering.mix_rules import MIXES
from helmsman.lowering.named_mixes import is_planned_by_name, named_mix
from helmsman.lowering.tensors import parameters, tensors
from helmsman.planner.machine import keeps_bf16
from helmsman.planner.tensor_formats import Formats, size_in
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import FORMAT_FACTS, NATIVE, STORED_FORMATS, NamedMix, StoredFormat, is_plain
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model

DEFAULT: StoredFormat = "f16"
"""The format of weights where neither the user nor the file says one."""


def resolve_formats(
    wanted: StoredFormat | str | None, name: str, model: Model, keeps_bf16: bool = False, in_gguf: bool = False
) -> tuple[StoredFormat, Formats]:
    """Return the format of most weights, and what each tensor is kept in where files are to be planned as they are,
    else nothing; `wanted`: a format, a mixture, `native`, or None, which is native for GGUF files, for checkpoints of
    quantised weights and, where `keeps_bf16`, for those in bf16, and else what the name says, what a model of quantised
    weights was released in, of which GGUF files have a type where `in_gguf`, or f16; `name`: how the model was named.

    Raises UsageError for native formats of what has no files, for a name's format that nobody plans by name, and for
    mixtures that are of experts alone, BadInputError for types that are not known."""
    if wanted is None:
        wanted = _named(name)
    mix = _mix(wanted)
    if mix is not None:
        return _told_apart(model, _mixed(model, mix))
    chosen = next((fmt for fmt in FORMAT_FACTS if fmt == wanted), None)
    if chosen is not None:
        return chosen, {}
    path, native = Path(name), wanted == NATIVE
    formats = _of_files(path, model, native)
    if not formats and keeps_bf16 and _is_directory(path):
        formats = _in_bf16(path, model)
    if not formats and wanted is None:
        formats = _released(model, in_gguf)
    return _told_apart(model, formats) if formats else (DEFAULT, {})


def formats_for(
    wanted: StoredFormat | str | None, name: str, model: Model, hardware: Hardware, engine: str | None, strategy: str
) -> tuple[StoredFormat, Formats]:
    """Return the formats of a question about a strategy of an engine on a machine, as `resolve_formats` does: llama.cpp
    reads GGUF files alone, and bf16 is kept as `keeps_bf16` says."""
    return resolve_formats(wanted, name, model, keeps_bf16(hardware, engine), strategy == "llama-cpp")


def _named(name: str) -> str | None:
    """Return the format that the name of a model of the catalogue states, as in `qwen3:8b-q4_K_M`. Raises UsageError
    for one that is not planned by its name."""
    if model_file(name) is not None or entry_name(name) is None:
        return None
    stated = stated_format(name)
    if stated is None or stated == NATIVE or is_planned_by_name(stated):
        return stated
    remedy = f"give the GGUF file, or a `format`: {', '.join((*MIXES, *STORED_FORMATS))}"
    raise UsageError(
        "the model's name states a format that is not planned by name", field="format", value=stated, remedy=remedy
    )


def _of_files(path: Path, model: Model, native: bool) -> Formats:
    """Return the formats of the files at `path`, nothing where another format is meant."""
    if is_gguf(path):
        return file_formats(path, model)
    has_weights = _is_directory(path)
    if native and not has_weights:
        from helmsman.lowering.stated_formats import stated_formats

        stated = stated_formats(model)
        if stated:
            return stated
        message = "only GGUF files, directories of checkpoints and configs of quantised models say it"
        raise UsageError(message, field="format", value=NATIVE, remedy="name a format")
    if not has_weights or not (native or model.native_quantisation):
        return {}
    from helmsman.lowering.checkpoint_formats import checkpoint_formats

    formats = checkpoint_formats(path, model)
    if native and not formats:
        message, remedy = "no weights are here", "download them, or name a `format`"
        raise BadInputError(message, file=str(path), remedy=remedy)
    return formats


def _released(model: Model, in_gguf: bool) -> Formats:
    """Return the formats that a model of quantised weights was released in, else nothing: also where they are not
    planned. Where `in_gguf`: those that its GGUF files have, of MXFP4 the mixture that llama.cpp makes of it."""
    if model.native_quantisation is None:
        return {}
    if in_gguf and model.native_quantisation.method == "mxfp4":
        return dict(named_mix(model, "mxfp4"))
    from helmsman.lowering.stated_formats import stated_formats

    try:
        formats = stated_formats(model)
    except BadInputError:
        return {}
    known = all(FORMAT_FACTS[fmt].gguf_file is not None for fmt in formats.values())
    return formats if known or not in_gguf else {}


def _in_bf16(path: Path, model: Model) -> Formats:
    """Return the formats of the checkpoint in a directory whose weights are in bf16 for the most part, else nothing:
    also where it is not all there, or in types that are not read."""
    from helmsman.lowering.checkpoint_formats import checkpoint_formats

    try:
        formats = checkpoint_formats(path, model)
    except BadInputError:
        return {}
    return formats if formats and _told_apart(model, formats)[0] == "bf16" else {}


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that no file system takes
        return False


def _told_apart(model: Model, formats: Formats) -> tuple[StoredFormat, Formats]:
    """Return the format of most values, and those of all tensors where they differ from what that means for them."""
    from helmsman.planner.mixed_formats import format_sizes

    meant = {(tensor.name, tensor.layer): tensor for tensor in tensors(model)}
    quantised = {key: fmt for key, fmt in formats.items() if meant[key].quantised}
    most = next(iter(format_sizes(model, quantised)))
    exact = {key: fmt for key, fmt in formats.items() if key not in quantised}
    others = {key: fmt for key, fmt in exact.items() if is_plain(fmt) and fmt != meant[key].kept_in(most)}
    mixed = len(set(quantised.values())) > 1 or others
    return most, {**quantised, **others} if mixed else {}


def _mix(wanted: str | None) -> NamedMix | None:
    return next((mix for mix in MIXES if mix == wanted), None)


def _mixed(model: Model, mix: NamedMix) -> Formats:
    """Return the formats of the matrices of a model in a mixture. Raises UsageError for one of experts where there are
    none."""
    if mix == "mxfp4" and not model.routed:
        raise UsageError("is of models with experts", field="format", value=mix, remedy="use `format` q4_k_m")
    return named_mix(model, mix)


def true_bits(model: Model, name: str, wanted: str | None) -> tuple[int, float]:
    """Return the bytes of a model's weights in a format, and bits of a parameter with all that is kept beside: `q4_k_m`
    is 4.85 bits or so, not 4.5. Raises what `resolve_formats` raises."""
    mix = _mix(wanted)
    if mix is None:
        weights, formats = resolve_formats(wanted, name, model)
    else:
        weights, formats = MIXES[mix].base, _mixed(model, mix)
    size = sum(size_in(tensor, formats, weights) for tensor in tensors(model) if tensor.tied_to is None)
    return size, 8.0 * size / parameters(model)


def file_formats(path: Path, model: Model) -> Formats:
    """Return the formats of the matrices of a GGUF file: of one whose parts the file has in several types, that which
    takes most bytes. Raises BadInputError for types that are not known, and for tensors of another model."""
    from helmsman.hwdb.gguf_files import gguf_places
    from helmsman.lowering.stored_names import gguf_name, possible_names, stored_tensors

    places = gguf_places(path)
    known = possible_names(model, gguf_name)
    for name in places:
        if name not in known and not _left_out(name, model):
            message, remedy = "the model does not have this tensor", "use the files of one model"
            raise BadInputError(message, file=str(path), field=name, remedy=remedy)
    formats = dict[tuple[str, int | None], StoredFormat]()
    for stored in stored_tensors(model, gguf_name, frozenset(places)):
        place = places.get(stored.name)
        if place is None or place.elements != stored.elements:
            message = f"a tensor of {stored.elements} values is expected"
            got, remedy = None if place is None else list(place.shape), "use the files of one model"
            raise BadInputError(message, file=str(path), field=stored.name, value=got, remedy=remedy)
        for part in stored.parts:
            if len(part.shape) > 1:
                key = part.name, part.layer
                formats[key] = _wider(formats.get(key), _known(place.type.name, path, stored.name))
    return formats


def _left_out(name: str, model: Model) -> bool:
    """Whether a plan leaves out a tensor of a file: of rotations, of draft blocks, keys and values of a layer that
    reads another's cache, or a scale of a whole matrix."""
    from helmsman.hwdb.gguf_configs.facts import block_number
    from helmsman.hwdb.gguf_rope import ROPE_TENSORS

    if name in ROPE_TENSORS or name.endswith((".scale", ".input_scale")):
        return True
    layer = block_number(name)
    if layer is None or layer >= model.layers:
        return layer is not None
    attention = model.attention(layer)
    reads_another = attention is not None and attention.cache_of is not None
    return reads_another and name.removeprefix(f"blk.{layer}.").startswith(("attn_k", "attn_v"))


def _known(kept: str, path: Path, name: str) -> StoredFormat:
    fmt = next((known for known in FORMAT_FACTS if known == kept), None)
    if fmt is None:
        remedy = "quantise the model again, or name a `format` that it is to become"
        raise BadInputError("a type that is not read", file=str(path), field=name, value=kept, remedy=remedy)
    return fmt


def _wider(one: StoredFormat | None, other: StoredFormat) -> StoredFormat:
    """Return the format whose values take more bytes."""
    return other if one is None else max(one, other, key=lambda fmt: FORMAT_FACTS[fmt].size / FORMAT_FACTS[fmt].values)
