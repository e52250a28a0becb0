"""The header of a GGUF file: metadata and the places of its tensors, all checked against the file's size.

Nothing is allocated by a count or a length that the file states before it is known to fit the file, so a damaged
file is an error and never a crash (gguf.md of ggml, versions 2 and 3)."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from helmsman.hwdb.gguf_types import BLOCK_TYPES, BlockType
from helmsman.schemas.errors import BadInputError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 2**16
_MAX_DIMENSIONS = 4
_MAX_KEY = 2**16 - 1  # the format's own limits, in bytes
_MAX_TENSOR_NAME = 64
_DAMAGED = "the file is damaged: write or download it again"

_STRING = 8
_ARRAY = 9
_SCALARS: dict[int, struct.Struct] = {
    kind: struct.Struct(f"<{letter}")
    for kind, letter in ((0, "B"), (1, "b"), (2, "H"), (3, "h"), (4, "I"), (5, "i"), (6, "f"), (7, "B"), (10, "Q"),
                         (11, "q"), (12, "d"))
}  # fmt: skip
_FLOAT32 = 6
_BOOL = 7
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Array:
    """An array of the metadata where it lies: `count` values of `kind` (the format's number) in bytes [start, end)."""

    kind: int
    count: int
    start: int
    end: int


Value = int | float | bool | str | Array


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor of the file: its type, shape (rows first) and bytes [start, end) from the file's beginning."""

    type: BlockType
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def elements(self) -> int:
        """Return the number of its values."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """The header that precedes the data of a GGUF file."""

    file: str
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorPlace]


class BeyondError(Exception):
    """A header goes on beyond the beginning of the file that was given."""


def read_header(data: bytes, file: str, size: int | None = None) -> Header:
    """Return the header of a file of `size` bytes that begins with `data`, which is all of it where no size is given.

    Raises BadInputError naming what is truncated, inconsistent or unknown, BeyondError where more of the file is
    needed."""
    cursor = _Cursor(data, file, size=size)
    tensor_count, pair_count = _counts(cursor)
    metadata: dict[str, Value] = {}
    for _ in range(cursor.fitting(pair_count, 8 + 4 + 1, "metadata")):
        key = cursor.string("metadata", _MAX_KEY)
        if key in metadata:
            raise cursor.wrong(key, "twice in the metadata")
        metadata[key] = _value(cursor, key)
    infos: dict[str, tuple[BlockType, tuple[int, ...], int]] = {}
    for _ in range(cursor.fitting(tensor_count, 8 + 4 + 8 + 4 + 8, "tensors")):
        name = cursor.string("tensors", _MAX_TENSOR_NAME)
        if name in infos:
            raise cursor.wrong(name, "two tensors have this name")
        infos[name] = _tensor_info(cursor, name)
    tensors = _placed(cursor, infos, _alignment(cursor, metadata))
    return Header(file, metadata, tensors)


def strings(data: bytes, array: Array, file: str, field: str) -> Iterator[str]:
    """Yield the texts of an array that `read_header` found in `data`. Raises BadInputError for other values."""
    cursor = _Cursor(data, file, array.start)
    if array.kind != _STRING:
        raise cursor.wrong(field, "an array of texts is expected")
    for _ in range(array.count):
        yield cursor.string(field, array.end)


def integers(data: bytes, array: Array, file: str, field: str) -> tuple[int, ...]:
    """Return the whole numbers of such an array. Raises BadInputError for other values."""
    scalar = _SCALARS.get(array.kind)
    if scalar is None or scalar.format[-1] in "fd":
        raise _Cursor(data, file).wrong(field, "an array of whole numbers is expected")
    return tuple(value for (value,) in scalar.iter_unpack(data[array.start : array.end]))


class _Cursor:
    """Reads `data` in order, the beginning of a file of `size` bytes, or all; whatever would pass its end is an
    error."""

    def __init__(self, data: bytes, file: str, at: int = 0, size: int | None = None) -> None:
        self.data, self.file, self.at, self.size = data, file, at, len(data) if size is None else size

    def take(self, count: int, field: str) -> int:
        """Where the next `count` bytes begin; they lie in the file."""
        start = self.at
        if count > self.size - start:
            message = f"truncated: {count} bytes needed from byte {start} on"
            raise BadInputError(message, file=self.file, field=field, value=self.size, remedy=_DAMAGED)
        self.at = start + count
        if self.at > len(self.data):
            raise BeyondError
        return start

    def number(self, scalar: struct.Struct, field: str) -> int | float:
        value: int | float = scalar.unpack_from(self.data, self.take(scalar.size, field))[0]
        return value

    def count(self, scalar: struct.Struct, field: str) -> int:
        return int(self.number(scalar, field))

    def fitting(self, count: int, least: int, field: str) -> int:
        """`count` itself, once as many items of at least `least` bytes each are known to fit the file."""
        if count > (self.size - self.at) // least:
            message = f"truncated: {count} items do not fit"
            raise BadInputError(message, file=self.file, field=field, value=self.size, remedy=_DAMAGED)
        return count

    def string(self, field: str, longest: int) -> str:
        length = self.count(_U64, field)
        start = self.take(length, field)
        if length > longest:
            raise self.wrong(field, f"a text of at most {longest} bytes is expected", length)
        try:
            return self.data[start : self.at].decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong(field, f"not UTF-8 at byte {start}") from None

    def wrong(self, field: str, message: str, value: object = None) -> BadInputError:
        return BadInputError(message, file=self.file, field=field, value=value, remedy=_DAMAGED)


def _counts(cursor: _Cursor) -> tuple[int, int]:
    """(tensors, pairs of metadata)."""
    start = cursor.take(4, "header")
    if cursor.data[start : start + 4] != MAGIC:
        remedy = "name a GGUF file"
        raise BadInputError("not a GGUF file", file=cursor.file, remedy=remedy)
    version = cursor.count(_U32, "version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        message = "big-endian GGUF is not read" if swapped else f"GGUF version 2 or 3 is expected, not {version}"
        raise BadInputError(message, file=cursor.file, field="version", remedy="convert it with a current llama.cpp")
    return cursor.count(_U64, "tensors"), cursor.count(_U64, "metadata")


def _value(cursor: _Cursor, key: str) -> Value:
    kind = cursor.count(_U32, key)
    if kind == _STRING:
        return cursor.string(key, cursor.size)
    if kind == _ARRAY:
        return _array(cursor, key)
    scalar = _SCALARS.get(kind)
    if scalar is None:
        raise cursor.wrong(key, "a value of unknown kind", kind)
    value = cursor.number(scalar, key)
    if kind == _BOOL and value not in (0, 1):
        raise cursor.wrong(key, "a boolean is 0 or 1", value)
    return bool(value) if kind == _BOOL else shortest(value) if kind == _FLOAT32 else value


def _array(cursor: _Cursor, key: str) -> Array:
    kind, count = cursor.count(_U32, key), cursor.count(_U64, key)
    if kind == _STRING:
        start = cursor.at
        for _ in range(cursor.fitting(count, _U64.size, key)):
            cursor.take(cursor.count(_U64, key), key)
        return Array(kind, count, start, cursor.at)
    scalar = _SCALARS.get(kind)
    if scalar is None:
        raise cursor.wrong(key, "an array of unknown kind" if kind != _ARRAY else "arrays of arrays are not read", kind)
    start = cursor.take(cursor.fitting(count, scalar.size, key) * scalar.size, key)
    return Array(kind, count, start, cursor.at)


def _tensor_info(cursor: _Cursor, name: str) -> tuple[BlockType, tuple[int, ...], int]:
    """(type, shape with rows first, offset within the data)."""
    dimensions = cursor.count(_U32, name)
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise cursor.wrong(name, f"1 to {_MAX_DIMENSIONS} dimensions are expected", dimensions)
    shape = tuple(cursor.count(_U64, name) for _ in range(dimensions))[::-1]
    number = cursor.count(_U32, name)
    block_type = BLOCK_TYPES.get(number)
    if block_type is None:
        raise cursor.wrong(name, "a data type that is not known", number)
    if min(shape) < 1 or shape[-1] % block_type.values:
        raise cursor.wrong(name, f"rows of whole blocks of {block_type.values} values are expected", list(shape))
    return block_type, shape, cursor.count(_U64, name)


def _alignment(cursor: _Cursor, metadata: Mapping[str, Value]) -> int:
    key = "general.alignment"
    value = metadata.get(key, DEFAULT_ALIGNMENT)
    if type(value) is not int or not 8 <= value <= _MAX_ALIGNMENT or value & (value - 1):
        raise cursor.wrong(key, f"a power of two from 8 to {_MAX_ALIGNMENT} is expected", value)
    return value


def _placed(
    cursor: _Cursor, infos: Mapping[str, tuple[BlockType, tuple[int, ...], int]], alignment: int
) -> dict[str, TensorPlace]:
    """Return the places of all tensors, none beyond the file and none over another."""
    base = -(-cursor.at // alignment) * alignment
    tensors = {}
    for name, (info, shape, offset) in infos.items():
        start, end = base + offset, base + offset + info.size(prod(shape), prod(shape[:-1]))
        if offset % alignment:
            raise cursor.wrong(name, f"its data is not aligned to {alignment} bytes", offset)
        if end > cursor.size:
            message = f"truncated: {end} bytes needed"
            raise BadInputError(message, file=cursor.file, field=name, value=cursor.size, remedy=_DAMAGED)
        tensors[name] = TensorPlace(info, shape, start, end)
    before, last = "", 0
    for name, place in sorted(tensors.items(), key=lambda item: item[1].start):
        if place.start < last:
            raise cursor.wrong(name, f"its data overlaps that of {before}", place.start)
        before, last = name, place.end
    return tensors


def shortest(value: float) -> float:
    """Return the number with the fewest digits that rounds to the same f32: 1e-6 was written as such, not as
    9.99999997e-7."""
    packed = struct.pack("<f", value)
    for digits in range(1, 10):
        text = float(f"{value:.{digits}g}")
        try:
            if struct.pack("<f", text) == packed:
                return text
        except OverflowError:  # a rounding up beyond f32's largest
            continue
    return value
