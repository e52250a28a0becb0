"""How tensors are divided into safetensors files: headers, offsets and the index."""

import json
from dataclasses import dataclass
from math import prod
from typing import Any

from helmsman.lowering.stored_names import StoredTensor
from helmsman.schemas.formats import Format, size_of

_DTYPES: dict[Format, str] = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: its `name`, the tensors it holds and their bytes."""

    name: str
    stored: tuple[StoredTensor, ...]
    size: int


def divide(stored: tuple[StoredTensor, ...], fmt: Format, limit: int) -> tuple[Shard, ...]:
    """Fill files of at most `limit` bytes in order; a larger tensor has a file of its own."""
    groups: list[list[StoredTensor]] = [[]]
    room = limit
    for item in stored:
        size = _size(item, fmt)
        if size > room and groups[-1]:
            groups.append([])
            room = limit
        groups[-1].append(item)
        room -= size
    return tuple(
        Shard(_name(number, len(groups)), tuple(group), sum(_size(item, fmt) for item in group))
        for number, group in enumerate(groups, 1)
    )


def header(shard: Shard, fmt: Format) -> bytes:
    """The file's beginning: the length of its JSON header, then the header, padded to 8 bytes."""
    fields: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for item in shard.stored:
        start, end = end, end + _size(item, fmt)
        fields[item.name] = {"dtype": _DTYPES[fmt], "shape": list(item.shape), "data_offsets": [start, end]}
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def index(shards: tuple[Shard, ...]) -> dict[str, Any]:
    """The content of `model.safetensors.index.json`."""
    places = {item.name: shard.name for shard in shards for item in shard.stored}
    return {"metadata": {"total_size": sum(shard.size for shard in shards)}, "weight_map": places}


def _name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number:05}-of-{count:05}.safetensors"


def _size(stored: StoredTensor, fmt: Format) -> int:
    return size_of(prod(stored.shape), fmt)
