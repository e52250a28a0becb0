"""How a number is stored: the formats of weights and KV, and their exact sizes."""

from typing import Literal

Format = Literal["f32", "f16", "bf16"]
"""What kernels multiply."""
FORMATS: tuple[Format, ...] = ("f32", "f16", "bf16")

StoredFormat = Literal["f32", "f16", "bf16", "q4"]
"""What memories hold. `q4`: groups of 64, 4 bits a value, an f16 scale and an f16 minimum a group (PARK-34)."""
STORED_FORMATS: tuple[StoredFormat, ...] = (*FORMATS, "q4")

Q4_GROUP = 64
Q4_GROUP_BYTES = Q4_GROUP // 2 + 4

_BYTES: dict[StoredFormat, int] = {"f32": 4, "f16": 2, "bf16": 2}


Q4_CODES = 16
"""Values of a row in 4-bit groups whose codes are stored together."""


def rows_size(rows: int, width: int, fmt: StoredFormat) -> int:
    """Bytes of cached rows: a token's `width` values of one head. 4-bit groups never cross rows, so that appending a
    token touches no other's; the last of a row may be shorter."""
    if fmt == "q4":
        return rows * (-(-width // Q4_GROUP) * 4 + -(-width // Q4_CODES) * Q4_CODES // 2)
    return size_of(rows * width, fmt)


def size_of(elements: int, fmt: StoredFormat) -> int:
    """Bytes that `elements` values take in `fmt`; 4-bit groups are counted whole."""
    if fmt == "q4":
        return -(-elements // Q4_GROUP) * Q4_GROUP_BYTES
    return elements * _BYTES[fmt]
