"""One safetensors file, checked before it is mapped: a bad file is an error, never a crash."""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.read import parse_json

if TYPE_CHECKING:
    import numpy as np

HEADER_LIMIT = 16 * 2**20
DTYPES: dict[str, Format] = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
NUMPY_DTYPES: dict[Format, str] = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}
_DAMAGED = "the file is damaged: write or download it again"


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a file: stored type, shape, and its bytes [start, end) counted from the file's beginning."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """A memory-mapped file; values are views of the mapping and never copied whole."""

    def __init__(self, path: Path) -> None:
        """Map `path`. Raises BadInputError when it is unreadable, truncated or inconsistent."""
        self.path = path
        try:
            with path.open("rb") as stream:
                size = stream.seek(0, 2)
                stream.seek(0)
                self.entries = _read_entries(stream.read(8), stream.read, size, str(path))
                self._map = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise BadInputError(f"cannot be read: {error.strerror}", file=str(path)) from None

    def array(self, name: str, expected: tuple[int, ...]) -> "tuple[Format, np.ndarray[Any, Any]]":
        """The tensor's format and a read-only view of its values, aligned; bf16 is given as uint16.

        Raises BadInputError when the stored type is not supported or the shape is not `expected`."""
        import numpy as np

        entry = self.checked(name, expected)
        fmt = DTYPES[entry.dtype]
        values = np.frombuffer(self._map, NUMPY_DTYPES[fmt], prod(entry.shape), entry.start)
        aligned = values if values.flags.aligned else values.copy()  # an odd header length shifts every value
        return fmt, aligned.reshape(entry.shape)

    def checked(self, name: str, expected: tuple[int, ...]) -> Entry:
        """The entry of `name`, if its type is supported and its shape is `expected`."""
        entry = self.entries[name]
        if entry.shape != expected:
            raise self._wrong(name, f"shape {list(expected)} expected", list(entry.shape))
        if entry.dtype not in DTYPES:
            raise self._wrong(name, f"data type {', '.join(DTYPES)} expected", entry.dtype)
        return entry

    def release(self, name: str) -> None:
        """Let the system take back the memory that holds this tensor's pages; they can be read again."""
        entry = self.entries[name]
        first = entry.start - entry.start % mmap.PAGESIZE
        if entry.end > first:
            self._map.madvise(mmap.MADV_DONTNEED, first, entry.end - first)

    def _wrong(self, name: str, message: str, got: object) -> BadInputError:
        remedy = "use the checkpoint of the plan's model"
        return BadInputError(message, file=str(self.path), field=name, value=got, remedy=remedy)


def _read_entries(prefix: bytes, read: Any, size: int, file: str) -> dict[str, Entry]:
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > size - 8:
        raise BadInputError("truncated: its header does not fit", file=file, value=size, remedy=_DAMAGED)
    if length > HEADER_LIMIT:
        message = f"header larger than the limit of {HEADER_LIMIT} bytes"
        raise BadInputError(message, file=file, value=length, remedy=_DAMAGED)
    header = parse_json(read(length), file)
    if not isinstance(header, dict):
        raise BadInputError("its header is not a JSON object", file=file, remedy=_DAMAGED)
    items = ((name, item) for name, item in header.items() if name != "__metadata__")
    entries = {name: _entry(name, item, 8 + length, size, file) for name, item in items}
    _check_adjoining(entries, 8 + length, size, file)
    return entries


def _check_adjoining(entries: Mapping[str, Entry], begin: int, size: int, file: str) -> None:
    """Tensors take all bytes behind the header, each begins where another ends: with offsets that overlap or are
    shifted, values would be those of another tensor. The format's own library demands the same."""
    end = begin
    for name, entry in sorted(entries.items(), key=lambda named: (named[1].start, named[1].end)):
        if entry.start != end:
            message = f"its bytes do not begin where those of the tensor before end, at {end - begin}"
            raise BadInputError(message, file=file, field=name, value=entry.start - begin, remedy=_DAMAGED)
        end = entry.end
    if end != size:
        message = f"{size - end} bytes behind the last tensor"
        raise BadInputError(message, file=file, value=size, remedy=_DAMAGED)


def _entry(name: str, item: Any, base: int, size: int, file: str) -> Entry:
    fields = item if isinstance(item, dict) else {}
    dtype, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (isinstance(dtype, str) and _are_counts(shape) and _are_counts(offsets) and len(offsets) == 2):
        raise BadInputError("not a tensor's header", file=file, field=name, value=item, remedy=_DAMAGED)
    entry = Entry(dtype, tuple(shape), base + offsets[0], base + offsets[1])
    if entry.end > size:
        message = f"truncated: {entry.end} bytes needed"
        raise BadInputError(message, file=file, field=name, value=size, remedy=_DAMAGED)
    fmt = DTYPES.get(dtype)
    if entry.start > entry.end or (fmt and entry.end - entry.start != size_of(prod(shape), fmt)):
        message = f"its bytes do not match shape {shape} of {dtype}"
        raise BadInputError(message, file=file, field=name, value=offsets, remedy=_DAMAGED)
    return entry


def _are_counts(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
