"""The GGUF files of a model: one, or several that it was split into."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from helmsman.hwdb.file_bytes import FileBytes
from helmsman.hwdb.gguf_header import Array, BeyondError, Header, TensorPlace, read_header
from helmsman.hwdb.gguf_model import model_from_gguf
from helmsman.hwdb.gguf_paths import gguf_files
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

FIRST_READ = 2**25
"""Bytes of a file in which its header is looked for at first: vocabularies of 150,000 tokens take 6 MB."""


def load_gguf_model(path: Path) -> Model:
    """Return the model of the GGUF file, or of the directory of GGUF files, at `path`.

    Headers are read, and the rotary factors that some files keep as tensors. Raises BadInputError."""
    with ExitStack() as opened:
        return model_of([opened.enter_context(closing(GgufFile(part))) for part in gguf_files(path)])


def gguf_places(path: Path) -> dict[str, TensorPlace]:
    """Return the tensors of the GGUF file, or of the directory of GGUF files, at `path`. Raises BadInputError."""
    result: dict[str, TensorPlace] = {}
    for part in gguf_files(path):
        with closing(GgufFile(part)) as file:
            result |= file.header.tensors
    return result


class GgufFile:
    """An open file whose `header` was checked before anything else of it is used; `data`: its beginning, up to the last
    array of the metadata."""

    def __init__(self, path: Path) -> None:
        """Open `path`. Raises BadInputError when it is unreadable, truncated or inconsistent."""
        self.path, self.bytes = path, FileBytes(path)
        if self.bytes.size == 0:
            raise BadInputError("truncated: it is empty", file=str(path), remedy="write or download it again")
        self.data, self.header = _beginning(self.bytes)

    def close(self) -> None:
        """Close it."""
        self.bytes.close()


def _beginning(file: FileBytes) -> tuple[bytes, Header]:
    """Read and check the header of a GGUF file.

    Returns the file's first bytes, up to the last array of the metadata (arrays are decoded when they are asked for),
    and the header. Raises BadInputError as `read_header` does."""
    length = FIRST_READ
    while True:
        data = file.read(0, min(length, file.size), "header")
        try:
            header = read_header(data, str(file.path), file.size)
        except BeyondError:
            length *= 4
            continue
        arrays = [value.end for value in header.metadata.values() if isinstance(value, Array)]
        return data[: max(arrays, default=0)], header


def model_of(parts: Sequence[GgufFile]) -> Model:
    """Return the model whose tensors `parts` hold; the first has its metadata. Raises BadInputError."""

    def content(name: str) -> bytes:
        part = next(part for part in parts if name in part.header.tensors)
        place = part.header.tensors[name]
        return part.bytes.read(place.start, place.end, name)

    return model_from_gguf(joined([part.header for part in parts]), content, parts[0].path.stem, parts[0].data)


def joined(headers: list[Header]) -> Header:
    """Return the first part's metadata with the tensors of all parts. Raises BadInputError where two have one
    tensor."""
    tensors = dict(headers[0].tensors)
    for header in headers[1:]:
        twice = next((name for name in header.tensors if name in tensors), None)
        if twice is not None:
            remedy = "download the parts of one model into a directory of their own"
            raise BadInputError("another part has this tensor too", file=header.file, field=twice, remedy=remedy)
        tensors |= header.tensors
    return Header(headers[0].file, headers[0].metadata, tensors)
