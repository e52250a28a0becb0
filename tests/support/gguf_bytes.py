"""GGUF files made by hand, byte by byte, right or wrong."""

import struct
from typing import Any


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def u32(value: int) -> bytes:
    return struct.pack("<II", 4, value)


def string(value: str) -> bytes:
    return struct.pack("<I", 8) + text(value)


def array(kind: int, count: int, content: bytes) -> bytes:
    return struct.pack("<IIQ", 9, kind, count) + content


def info(name: str, shape: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    """A tensor's place; `shape` with rows first."""
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


def gguf(
    pairs: dict[str, bytes] | list[tuple[str, bytes]] = (),  # type: ignore[assignment]
    infos: list[bytes] = [],  # noqa: B006
    data: int = 64,
    **changes: Any,
) -> bytes:
    """A file; `changes` of magic, version, counts of tensors and pairs."""
    found = list(pairs.items()) if isinstance(pairs, dict) else list(pairs)
    head = changes.get("magic", b"GGUF") + struct.pack(
        "<IQQ", changes.get("version", 3), changes.get("tensors", len(infos)), changes.get("count", len(found))
    )
    content = head + b"".join(text(key) + value for key, value in found) + b"".join(infos)
    return content + bytes(-len(content) % 32) + bytes(data)
