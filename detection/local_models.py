"""Models that are on the disk already: in the folders of Hugging Face, Ollama, LM Studio and llama.cpp."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from helmsman.detection.system import ObservedSystem
from helmsman.hwdb.gguf_paths import stem_of
from helmsman.hwdb.load_model import entry_name
from helmsman.schemas.detected import LocalModel
from helmsman.schemas.errors import HelmError, UsageError
from helmsman.schemas.near_names import close_names

LOCAL = "local:"
"""Before the name of a model on the disk."""
_MOST = 10_000
_MODEL_LAYER = "application/vnd.ollama.image.model"
_OLLAMA_HOMES = ("/usr/share/ollama/.ollama/models", "/var/lib/ollama/.ollama/models", "/var/lib/ollama/models")
"""Where Ollama's service keeps models on Linux (its documentation, docs/faq, and packages of distributions)."""


def find_models(system: ObservedSystem) -> tuple[LocalModel, ...]:
    """Return the models that are here whole, by store and name."""
    try:
        home = system.home
    except UsageError:
        home = Path("/nonexistent")
    stores = (_hugging_face(system, home), _ollama(system, home), _lm_studio(system, home), _llama_cpp(system, home))
    listed = (model for store in stores for model in _readable(store))
    return tuple(sorted(islice(listed, _MOST), key=lambda model: (model.store, model.name.casefold())))


def named_model(name: str, models: Sequence[LocalModel]) -> LocalModel | None:
    """Return the model on the disk that `name` means: its name, its repository's last part, or its file's; None where
    there is none. Raises UsageError where several are called so."""
    wanted = name.removeprefix(LOCAL).casefold()
    exact = [model for model in models if model.name.casefold() == wanted]
    matches = exact or [model for model in models if wanted in _other_names(model)]
    if len({model.path for model in matches}) > 1:
        remedy = f"write {' or '.join(LOCAL + model.name for model in matches[:6])}, or a path"
        raise UsageError("more than one model on the disk is called so", field="model", value=name, remedy=remedy)
    if not matches and name.startswith(LOCAL):
        near = close_names(wanted, [model.name for model in models])
        remedy = (
            f"did you mean {', '.join(LOCAL + other for other in near)}?" if near else "see helm-list models --local"
        )
        raise UsageError("no model on the disk is called so", field="model", value=name, remedy=remedy)
    return matches[0] if matches else None


def _other_names(model: LocalModel) -> set[str]:
    """Return what else a model is called: its name without owner or tag, and its file's name."""
    name, path = model.name.casefold(), Path(model.path)
    tail = name.rpartition("/")[2]
    stem = stem_of(path.name).casefold() if path.suffix == ".gguf" else ""
    return {tail, tail.removesuffix(":latest"), stem} - {""}


def _readable(store: Iterator[LocalModel]) -> Iterator[LocalModel]:
    """Yield what can be read of a store: folders of other users may be closed."""
    with suppress(OSError):
        yield from store


def _hugging_face(system: ObservedSystem, home: Path) -> Iterator[LocalModel]:
    env = system.environment
    default = Path(env.get("XDG_CACHE_HOME") or home / ".cache") / "huggingface"
    hub = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or Path(env.get("HF_HOME") or default) / "hub"
    for folder in sorted(Path(hub).glob("models--*")):
        name = folder.name.removeprefix("models--").replace("--", "/")
        revision = system.text(folder / "refs" / "main").strip()
        snapshots = [folder / "snapshots" / revision] if revision else sorted((folder / "snapshots").glob("*"))
        for snapshot in snapshots[-1:]:
            yield from _in_folder(snapshot, name, "hugging-face")


def _in_folder(folder: Path, name: str, store: str) -> Iterator[LocalModel]:
    """Yield the checkpoint of a folder, and each model of its GGUF files."""
    weights = sorted(folder.glob("*.safetensors"))
    if weights and (folder / "config.json").exists():
        yield _model(name, store, folder, weights)
    files = sorted(folder.glob("*.gguf")) + sorted(folder.glob("*/*.gguf"))
    models: dict[str, list[Path]] = {}
    for file in files:
        if not file.name.startswith("mmproj"):
            models.setdefault(stem_of(file.name), []).append(file)
    for stem, parts in models.items():
        yield _model(f"{name.rpartition('/')[0]}/{stem}".lstrip("/"), store, parts[0], parts)


def _ollama(system: ObservedSystem, home: Path) -> Iterator[LocalModel]:
    stated = system.environment.get("OLLAMA_MODELS")
    homes = [Path(stated)] if stated else [home / ".ollama" / "models", *map(system.at, _OLLAMA_HOMES)]
    for place in homes:
        with suppress(OSError):
            for manifest in sorted((place / "manifests").glob("*/*/*/*")):
                blob = _blob(system, place, manifest)
                if blob is not None:
                    yield _model(_ollama_name(manifest.relative_to(place / "manifests")), "ollama", blob, [blob])


def _ollama_name(manifest: Path) -> str:
    """Return the name that Ollama prints: host and owner are left out where they are its library."""
    host, owner, model, tag = manifest.parts
    library = host == "registry.ollama.ai"
    own = f"{model}:{tag}" if owner == "library" and library else f"{owner}/{model}:{tag}"
    return own if library else f"{host}/{own}"


def _blob(system: ObservedSystem, place: Path, manifest: Path) -> Path | None:
    """Return the file with the weights that a manifest names; None where it names none, or the file is not there."""
    try:
        content = json.loads(system.content(manifest) or b"null")
    except ValueError:
        return None
    layers = content.get("layers", []) if isinstance(content, dict) else []
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, dict) and layer.get("mediaType") == _MODEL_LAYER:
            digest = str(layer.get("digest", ""))
            blob = place / "blobs" / digest.replace(":", "-")
            return blob if re.fullmatch(r"sha256:[0-9a-f]{64}", digest) and blob.is_file() else None
    return None


def _lm_studio(system: ObservedSystem, home: Path) -> Iterator[LocalModel]:
    for place in (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"):
        for folder in sorted(place.glob("*/*")):
            yield from _in_folder(folder, f"{folder.parent.name}/{folder.name}", "lm-studio")


def _llama_cpp(system: ObservedSystem, home: Path) -> Iterator[LocalModel]:
    cache = system.environment.get("LLAMA_CACHE") or home / ".cache" / "llama.cpp"
    yield from _in_folder(Path(cache), "", "llama.cpp")


def _model(name: str, store: str, path: Path, files: Sequence[Path]) -> LocalModel:
    size = sum(file.stat().st_size for file in files)
    return LocalModel.model_validate(
        {"name": name[:200], "store": store, "path": str(path), "bytes": size, "entry": _entry(name)}
    )


def _entry(name: str) -> str | None:
    """Return the model of the catalogue that a name means, None where it means none or several."""
    try:
        return entry_name(name)
    except HelmError:
        return None
