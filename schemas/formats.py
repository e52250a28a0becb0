"""How a number is stored: the formats of weights, KV and activations, and their exact sizes."""

from typing import Literal

from typing_extensions import TypeIs

Format = Literal["f32", "f16", "bf16"]
"""Values one by one: activations, and what 4-bit groups are expanded to."""
FORMATS: tuple[Format, ...] = ("f32", "f16", "bf16")

KvFormat = Literal["f32", "f16", "bf16", "q8_0"]
"""The formats that attention reads. `q8_0`: a head's row of one token in groups of 32, 8 bits a value and an f16 scale
a group."""
KV_FORMATS: tuple[KvFormat, ...] = (*FORMATS, "q8_0")

KeptFormat = Literal["f32", "f16", "bf16", "q8_0", "q4"]
"""The formats that caches are kept in: as attention reads them, or in 4-bit groups that are expanded first
(PARK-34)."""

StoredFormat = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "q8", "q4"]
"""The formats that weights are kept in, and multiplied as. `q8_0`, `q4_0`, `q4_k`, `q6_k`: GGUF's blocks. `q8`, `q4`:
groups of 64 values of a row with an f16 scale and an f16 minimum (PARK-34)."""
STORED_FORMATS: tuple[StoredFormat, ...] = (*FORMATS, "q8_0", "q4_0", "q4_k", "q6_k", "q8", "q4")

Blocks = Literal["q8_0", "q4_0", "q4_k", "q6_k"]
"""Those of GGUF files, whose rows are whole blocks."""
BLOCKS: tuple[Blocks, ...] = ("q8_0", "q4_0", "q4_k", "q6_k")

Precision = Literal["f32", "bf16", "int16", "int8"]
"""The numbers that activations are rounded to where they meet a matrix: `bf16` to that format; `int16`, `int8` to whole
numbers of so many bits under a scale per 32 of a row."""
PRECISIONS: tuple[Precision, ...] = ("f32", "bf16", "int16", "int8")

FileFormat = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "q4_k_m"]
"""The formats that checkpoints are written in. `q4_k_m`: q4_k, q6_k where llama.cpp's files of that name have it, and
q8_0 for rows that are whole blocks of neither."""
FILE_FORMATS: tuple[FileFormat, ...] = (*FORMATS, *BLOCKS, "q4_k_m")

_BYTES: dict[StoredFormat, int] = {"f32": 4, "f16": 2, "bf16": 2}

_BLOCKS: dict[StoredFormat, tuple[int, int]] = {
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q4_k": (256, 144),
    "q6_k": (256, 210),
    "q8": (64, 68),
    "q4": (64, 36),
}
"""(values, bytes) of a block."""

Q4_CODES = 16
"""Values of a row in 4-bit groups whose codes are stored together."""


def is_plain(fmt: StoredFormat) -> TypeIs[Format]:
    """Whether values are stored one by one."""
    return fmt in FORMATS


def block_of(fmt: StoredFormat) -> int:
    """How many columns of a matrix make a block: their number is a multiple of it; 1 where any number will do."""
    return _BLOCKS[fmt][0] if fmt in BLOCKS else 1


def rows_size(rows: int, width: int, fmt: StoredFormat) -> int:
    """Return bytes of cached rows: a token's `width` values of one head. Groups never cross rows, so that appending a
    token touches no other's; the last 4-bit group of a row may be shorter."""
    if fmt == "q4":
        return rows * (-(-width // _BLOCKS[fmt][0]) * 4 + -(-width // Q4_CODES) * Q4_CODES // 2)
    return rows * size_of(width, fmt)


def size_of(elements: int, fmt: StoredFormat) -> int:
    """Return bytes that `elements` values take in `fmt`; blocks are counted whole."""
    if is_plain(fmt):
        return elements * _BYTES[fmt]
    values, size = _BLOCKS[fmt]
    return -(-elements // values) * size


def same_size(one: StoredFormat, other: StoredFormat) -> bool:
    """Whether what was measured in one format stands for the other: equal ones, and plain ones of equal size."""
    return one == other or (is_plain(one) and is_plain(other) and _BYTES[one] == _BYTES[other])
