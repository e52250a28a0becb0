"""How a number is stored: the formats of weights and KV, and their exact sizes."""

from typing import Literal

Format = Literal["f32", "f16", "bf16"]
FORMATS: tuple[Format, ...] = ("f32", "f16", "bf16")

_BYTES: dict[Format, int] = {"f32": 4, "f16": 2, "bf16": 2}


def size_of(elements: int, fmt: Format) -> int:
    """Bytes that `elements` values take in `fmt`."""
    return elements * _BYTES[fmt]
