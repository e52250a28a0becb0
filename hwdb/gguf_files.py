"""The GGUF files of a model: one, or several that it was split into."""

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from mmap import ACCESS_READ, mmap
from pathlib import Path

from helmsman.hwdb.gguf_header import Header, TensorPlace, read_header
from helmsman.hwdb.gguf_model import model_from_gguf
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

SUFFIX = ".gguf"
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def is_gguf(path: Path) -> bool:
    """Whether `path` names a GGUF file, or a directory that has some and no Hugging Face checkpoint."""
    try:
        if path.is_dir():
            return not (path / "config.json").exists() and any(path.glob(f"*{SUFFIX}"))
        return path.suffix == SUFFIX
    except OSError:  # a name that no file system takes, or a directory that cannot be read
        return False


def gguf_files(path: Path) -> tuple[Path, ...]:
    """All files of the model at `path`, which is one of them or their directory, in order.

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


def load_gguf_model(path: Path) -> Model:
    """The model of the GGUF file, or of the directory of GGUF files, at `path`.

    Headers are read, and the rotary factors that some files keep as tensors. Raises BadInputError."""
    with ExitStack() as opened:
        return model_of([opened.enter_context(closing(GgufFile(part))) for part in gguf_files(path)])


def gguf_places(path: Path) -> dict[str, TensorPlace]:
    """The tensors of the GGUF file, or of the directory of GGUF files, at `path`. Raises BadInputError."""
    found: dict[str, TensorPlace] = {}
    for part in gguf_files(path):
        with closing(GgufFile(part)) as file:
            found |= file.header.tensors
    return found


class GgufFile:
    """A memory-mapped file whose `header` was checked before anything else of it is used."""

    def __init__(self, path: Path) -> None:
        """Map `path`. Raises BadInputError when it is unreadable, truncated or inconsistent."""
        self.path = path
        self.data = _mapped(path)
        self.header = read_header(self.data, str(path))

    def close(self) -> None:
        """Unmap it."""
        self.data.close()


def model_of(parts: Sequence[GgufFile]) -> Model:
    """The model whose tensors `parts` hold; the first has its metadata. Raises BadInputError."""

    def content(name: str) -> bytes:
        part = next(part for part in parts if name in part.header.tensors)
        place = part.header.tensors[name]
        return part.data[place.start : place.end]

    return model_from_gguf(joined([part.header for part in parts]), content, parts[0].path.stem)


def joined(headers: list[Header]) -> Header:
    """The first part's metadata with the tensors of all parts. Raises BadInputError where two have one tensor."""
    tensors = dict(headers[0].tensors)
    for header in headers[1:]:
        twice = next((name for name in header.tensors if name in tensors), None)
        if twice is not None:
            remedy = "download the parts of one model into a directory of their own"
            raise BadInputError("another part has this tensor too", file=header.file, field=twice, remedy=remedy)
        tensors |= header.tensors
    return Header(headers[0].file, headers[0].metadata, tensors)


def _mapped(path: Path) -> mmap:
    try:
        with path.open("rb") as stream:
            if stream.seek(0, 2) == 0:
                raise BadInputError("truncated: it is empty", file=str(path), remedy="write or download it again")
            return mmap(stream.fileno(), 0, access=ACCESS_READ)
    except OSError as error:
        remedy = "check the path and its permissions"
        raise BadInputError(f"cannot be read: {error.strerror}", file=str(path), remedy=remedy) from None


def _only(folder: Path) -> Path:
    """The first file of the directory's one model."""
    found = sorted(folder.glob(f"*{SUFFIX}"))
    models = {(split[1], split[3]) if (split := _SPLIT.fullmatch(path.name)) else path.name for path in found}
    if len(models) != 1:
        message = "more than one model is here" if models else "no GGUF file is here"
        remedy = "name the file"
        raise BadInputError(message, file=str(folder), value=[path.name for path in found] or None, remedy=remedy)
    return found[0]
