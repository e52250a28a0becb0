"""One safetensors file: its header, checked before anything else of it is used, and the places of its tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

from helmsman.hwdb.file_bytes import FileBytes
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.read import JSON_LIMIT, check_regular, parse_json, read_bytes

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
HEADER_LIMIT = 16 * 2**20
DTYPES: dict[str, Format] = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_DAMAGED = "the file is damaged: write or download it again"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor in a file: stored type, shape, and its bytes [start, end) counted from the file's beginning."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """An open file and its tensors, `entries`, by name."""

    def __init__(self, path: Path) -> None:
        """Open `path`. Raises BadInputError when it is unreadable, truncated or inconsistent."""
        self.path, self.bytes = path, FileBytes(path)
        self.entries = _read_entries(self.bytes.read, self.bytes.size, str(path))

    def checked(self, name: str, expected: tuple[int, ...]) -> TensorEntry:
        """Return the entry of `name`, if its type is supported and its shape is `expected`. Raises BadInputError."""
        entry = self.entries[name]
        if entry.shape != expected:
            raise self._wrong(name, f"shape {list(expected)} expected", list(entry.shape))
        if entry.dtype not in DTYPES:
            raise self._wrong(name, f"data type {', '.join(DTYPES)} expected", entry.dtype)
        return entry

    def close(self) -> None:
        """Close it."""
        self.bytes.close()

    def _wrong(self, name: str, message: str, got: object) -> BadInputError:
        remedy = "use the checkpoint of the plan's model"
        return BadInputError(message, file=str(self.path), field=name, value=got, remedy=remedy)


def shards_of(index: Path) -> dict[str, str]:
    """Read the index of a checkpoint in several files (shards): by tensor the name of the file that holds it.

    Raises BadInputError where `index` is no such document."""
    check_regular(index, "download it again")
    content = parse_json(read_bytes(index, JSON_LIMIT), str(index))
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not all(_is_file_name(shard) for shard in weight_map.values()):
        message = "an object of tensor name to file name in the same directory is expected"
        raise BadInputError(message, file=str(index), field="weight_map", remedy="download it again")
    return weight_map


def names_in(folder: Path) -> tuple[str, ...]:
    """List the names of the tensors in a checkpoint's directory; none where its weights are missing or damaged."""
    try:
        if (folder / INDEX).exists():
            return tuple(shards_of(folder / INDEX))
        if not (folder / SINGLE).exists():
            return ()
        file = SafetensorsFile(folder / SINGLE)
    except (BadInputError, OSError):  # whoever reads weights says what is wrong with them
        return ()
    file.close()
    return tuple(file.entries)


def checkpoint_entries(folder: Path) -> dict[str, TensorEntry]:
    """Return all tensors of the checkpoint in a directory, in one file or several; none where it has no weights.

    Raises BadInputError for a file that is missing, damaged or inconsistent."""
    if (folder / INDEX).exists():
        names = sorted(set(shards_of(folder / INDEX).values()))
    else:
        names = [SINGLE] if (folder / SINGLE).exists() else []
    entries: dict[str, TensorEntry] = {}
    for name in names:
        file = SafetensorsFile(folder / name)
        file.close()
        entries |= file.entries
    return entries


def _is_file_name(shard: object) -> bool:
    return isinstance(shard, str) and shard not in ("", ".", "..") and not {"/", "\\", "\0"} & set(shard)


def _read_entries(read: Callable[[int, int, str], bytes], size: int, file: str) -> dict[str, TensorEntry]:
    length = int.from_bytes(read(0, 8, "header"), "little") if size >= 8 else size
    if length > size - 8:
        raise BadInputError("truncated: its header does not fit", file=file, value=size, remedy=_DAMAGED)
    if length > HEADER_LIMIT:
        message = f"header larger than the limit of {HEADER_LIMIT} bytes"
        raise BadInputError(message, file=file, value=length, remedy=_DAMAGED)
    header = parse_json(read(8, 8 + length, "header"), file)
    if not isinstance(header, dict):
        raise BadInputError("its header is not a JSON object", file=file, remedy=_DAMAGED)
    items = ((name, item) for name, item in header.items() if name != "__metadata__")
    entries = {name: _entry(name, item, 8 + length, size, file) for name, item in items}
    _check_adjoining(entries, 8 + length, size, file)
    return entries


def _check_adjoining(entries: Mapping[str, TensorEntry], begin: int, size: int, file: str) -> None:
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


def _entry(name: str, item: Any, base: int, size: int, file: str) -> TensorEntry:
    fields = item if isinstance(item, dict) else {}
    dtype, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (isinstance(dtype, str) and _are_counts(shape) and _are_counts(offsets) and len(offsets) == 2):
        raise BadInputError("not a tensor's header", file=file, field=name, value=item, remedy=_DAMAGED)
    entry = TensorEntry(dtype, tuple(shape), base + offsets[0], base + offsets[1])
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
