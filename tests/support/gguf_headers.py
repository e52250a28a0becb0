"""Headers of GGUF files of many tensors, whose values were never written."""

import struct
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from gguf_bytes import array, gguf, info, string
from gguf_metadata import Metadata

from helmsman.hwdb.gguf_types import BLOCK_TYPES

_KINDS = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}


def value(item: Any) -> bytes:
    """A value of the metadata as a file holds it."""
    if isinstance(item, str):
        return string(item)
    if isinstance(item, list):
        kind, form = _KINDS[type(item[0])]
        return array(kind, len(item), b"".join(struct.pack(form, number) for number in item))
    kind, form = _KINDS[type(item)]
    return struct.pack("<I", kind) + struct.pack(form, item)


def header_bytes(
    pairs: Metadata, tensors: Iterable[tuple[str, tuple[int, ...]]], kinds: Mapping[str, int] | None = None
) -> tuple[bytes, int]:
    """A file's bytes up to its data, and its whole size; tensors are f32, or of ggml's type in `kinds`."""
    infos, offset = [], 0
    for name, shape in tensors:
        kind = (kinds or {}).get(name, 0)
        infos.append(info(name, shape, kind, offset))
        offset += -(-_size(shape, kind) // 32) * 32
    content = gguf({key: value(item) for key, item in pairs.items()}, infos, data=0)
    return content, len(content) + offset


def _size(shape: tuple[int, ...], kind: int) -> int:
    return BLOCK_TYPES[kind].size(prod(shape), prod(shape[:-1]))
