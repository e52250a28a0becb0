"""The GGUF files that a path stands for, by their names alone: one, or several that a model was split into."""

import re
from pathlib import Path

from helmsman.schemas.errors import BadInputError

SUFFIX = ".gguf"
_BLOB = re.compile(r"sha256-[0-9a-f]{64}")
"""How Ollama calls files, of weights among others, in its folder `blobs`."""
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def stem_of(name: str) -> str:
    """Return the name of a GGUF file without its suffix and, where a model is split into several files, without the
    number of the part; any other name as it is."""
    split = _SPLIT.fullmatch(name)
    return name.removesuffix(SUFFIX) if split is None else split[1]


def is_gguf(path: Path) -> bool:
    """Whether `path` names a GGUF file, or a directory that has some and no Hugging Face checkpoint."""
    try:
        if path.is_dir():
            return not (path / "config.json").exists() and any(path.glob(f"*{SUFFIX}"))
        return path.suffix == SUFFIX or (path.parent.name == "blobs" and _BLOB.fullmatch(path.name) is not None)
    except OSError:  # a name that no file system takes, or a directory that cannot be read
        return False


def gguf_files(path: Path) -> tuple[Path, ...]:
    """Return all files of the model at `path`, which is one of them or their directory, in order.

    Raises BadInputError for a missing part and for a directory with several models."""
    if path.is_dir():
        path = _only(path)
    split = _SPLIT.fullmatch(path.name)
    if split is None:
        return (path,)
    stem, count = split[1], int(split[3])
    parts = tuple(path.with_name(f"{stem}-{number:05}-of-{split[3]}{SUFFIX}") for number in range(1, count + 1))
    missing = next((part for part in parts if not part.is_file()), None)
    if missing is not None or not parts:
        remedy = f"download all {count} parts into one directory"
        raise BadInputError("a part of the model is missing", file=str(missing or path), remedy=remedy)
    return parts


def _only(folder: Path) -> Path:
    """Return the first file of the directory's one model."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    models = {(split[1], split[3]) if (split := _SPLIT.fullmatch(path.name)) else path.name for path in paths}
    if len(models) != 1:
        message = "more than one model is here" if models else "no GGUF file is here"
        remedy = "name the file"
        raise BadInputError(message, file=str(folder), value=[path.name for path in paths] or None, remedy=remedy)
    return paths[0]
