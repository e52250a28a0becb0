"""`--model`: a catalogue name or hub id, a Hugging Face directory or `config.json`, GGUF files, a plan's model."""

import json
import re
from pathlib import Path
from typing import Any

from helmsman.hwdb.gguf_paths import SUFFIX, is_gguf
from helmsman.hwdb.model_config import model_from_config
from helmsman.hwdb.model_names import find_model
from helmsman.hwdb.safetensors_file import names_in
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.near_names import close_names
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import CONFIG_LIMIT, check_regular, parse_document, parse_json, read_bytes

_CATALOGUE = Path(__file__).parent / "models"
_UNCOVERED = _CATALOGUE / "uncovered"
_BLOCK = re.compile(r"(?:model\.|language_model\.|decoder\.|backbone\.)*layers\.([0-9]{1,9})\..*")
_DOCUMENTS = "a config.json, a helm.model/2 or a helm.plan/1 document"
_MAY_BE_ENDLESS = frozenset({"time_step_limit"})
"""Keys of a config.json under which released files have an infinity."""

_HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/){0,3}[\w. -]+(?::[\w.-]+)?")
"""A name that is no path: at most a hub, an owner and a repository, and a tag."""


def load_model(spec: str) -> Model:
    """Return the model that `spec` names; a catalogue name (in any case) wins over a file of the same name,
    and a file over names that hubs and engines have for it, such as Qwen/Qwen3-8B and qwen3:8b-q4_K_M.

    Raises UsageError for an unknown name, BadInputError for a file that cannot be accepted and for a
    catalogued model whose structure is not covered."""
    entry = _entry(spec)
    if entry is not None:
        return _catalogued(entry)
    path = model_file(spec)
    if path is not None:
        if is_gguf(path):
            from helmsman.hwdb.gguf_files import load_gguf_model

            return load_gguf_model(path)
        return _from_path(_config_in(path) if path.is_dir() else path)
    entry = _entry(entry_name(spec) or "")
    if entry is not None:
        return _catalogued(entry)
    if "/" in spec or "\\" in spec or spec.endswith((".json", SUFFIX)):
        raise BadInputError("no such file or directory", file=spec, remedy=_path_remedy(spec))
    raise UsageError("unknown model", field="model", value=spec, remedy=_name_remedy(spec))


def model_file(spec: str) -> Path | None:
    """Return the file or folder that `spec` names; None for a name of the catalogue, and where there is none."""
    path = Path(spec)
    return path if spec and _entry(spec) is None and _exists(path) else None


def entry_name(spec: str) -> str | None:
    """Return the name in the catalogue of the model that hubs and engines call `spec`, None where it has none. Raises
    UsageError where several are called so."""
    if _HUB_ID.fullmatch(spec) is None or spec.endswith((".json", SUFFIX)):
        return None
    own = spec.rpartition("/")[2]
    entry = _entry(own)
    if entry is not None:
        return entry.stem
    stems = [path.stem for folder in (_CATALOGUE, _UNCOVERED) for path in _entries(folder).values()]
    named = find_model(spec, stems)
    return None if named is None else named.entry


def catalogue_names() -> list[str]:
    """Return names of all models in the catalogue that are covered, sorted."""
    return sorted((path.stem for path in _entries(_CATALOGUE).values()), key=str.casefold)


def check_context(model: Model, context: int) -> None:
    """Raise UsageError beyond the model's context. A sliding window bounds what its layers keep, not the context."""
    if context > model.max_context:
        raise UsageError(
            f"beyond the {model.max_context} tokens of {model.name}",
            field="context",
            value=context,
            remedy=f"ask for at most {model.max_context} tokens of prompt and output together",
        )


def _key(name: str) -> str:
    # Meta renamed its repositories: Meta-Llama-3.1-8B and Llama-3.1-8B are the same.
    return name.casefold().removeprefix("meta-")


def _entry(name: str) -> Path | None:
    return _entries(_CATALOGUE).get(_key(name)) or _entries(_UNCOVERED).get(_key(name))


def _entries(folder: Path) -> dict[str, Path]:
    return {_key(path.stem): path for path in folder.glob("*.json")}


def _catalogued(path: Path) -> Model:
    content = parse_json(read_bytes(path, CONFIG_LIMIT), str(path))
    return model_from_config(content, path.stem, f"model {path.stem}")


def _config_in(folder: Path) -> Path:
    path = folder / "config.json"
    if not _exists(path):
        raise BadInputError(
            "neither config.json nor GGUF files in this directory", file=str(folder), remedy="give a model's directory"
        )
    check_regular(path, "give a model's directory")
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file system takes, for instance one that is too long
        return False


def _from_path(path: Path) -> Model:
    data = read_bytes(path, Plan.byte_limit)
    content = parse_json(data, str(path), _MAY_BE_ENDLESS)
    if not isinstance(content, dict):
        raise BadInputError("a JSON object is expected", file=str(path), value=content, remedy=f"give {_DOCUMENTS}")
    match content.get("schema"):
        case "helm.model/1" | "helm.model/2":
            return parse_document(Model, data, str(path))
        case "helm.plan/1":
            return _embedded(content, str(path))
        case None:
            return _read_config(content, len(data), path)
    raise BadInputError(
        "not a model",
        file=str(path),
        field="schema",
        value=content["schema"],
        remedy=f"give {_DOCUMENTS}",
    )


def _embedded(plan: dict[str, Any], file: str) -> Model:
    """Return the model in a plan; the rest of the plan is not looked at."""
    if not isinstance(plan.get("model"), dict):
        raise BadInputError("missing", file=file, field="model", remedy="add the plan's model")
    try:
        return parse_document(Model, json.dumps(plan["model"]).encode(), file)
    except BadInputError as error:
        error.field = f"model.{error.field}" if error.field else "model"
        raise


def _read_config(content: dict[str, Any], size: int, path: Path) -> Model:
    if size > CONFIG_LIMIT:
        remedy = "give the model's own config.json"
        raise BadInputError(f"larger than the limit of {CONFIG_LIMIT} bytes", file=str(path), remedy=remedy)
    stem = path.resolve().parent.name if path.name == "config.json" else path.stem
    name = "".join(letter for letter in stem if letter.isprintable())[:200] or "model"
    model = model_from_config(content, name, str(path))
    if path.name == "config.json":
        _check_blocks(path, model)
    return model


def _check_blocks(path: Path, model: Model) -> None:
    """Raise BadInputError where weights beside `config.json` have more blocks than it says, those of draft heads
    included: with fewer it would be another model."""
    blocks = model.layers + sum(draft.count for draft in model.drafts)
    for name in names_in(path.parent):
        block = _BLOCK.fullmatch(name)
        if block is not None and int(block[1]) >= blocks:
            message = f"the weights beside it have a tensor of block {int(block[1])}, {name}"
            remedy = "use the config.json and the files of one model"
            raise BadInputError(message, file=str(path), field="num_hidden_layers", value=model.layers, remedy=remedy)


def _name_remedy(name: str) -> str:
    close = close_names(name, catalogue_names())
    if close:
        return f"did you mean {', '.join(close)}?"
    return "give a catalogue name such as Qwen3-8B, a config.json, or a directory with one"


def _path_remedy(spec: str) -> str:
    close = close_names(Path(spec).name, catalogue_names())
    hint = f"; the catalogue has {', '.join(close)}" if close else ""
    return f"check the path{hint}"
