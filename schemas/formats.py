"""How a number is stored: the formats of weights, KV and activations, and their exact sizes."""

from typing import Literal, NamedTuple, get_args

from typing_extensions import TypeIs

Format = Literal["f32", "f16", "bf16"]
"""Values one by one: activations, and what 4-bit groups are expanded to."""
FORMATS: tuple[Format, ...] = get_args(Format)

Blocks = Literal["q8_0", "q4_0", "q4_k", "q6_k"]
"""GGUF's blocks; rows of such files are whole blocks."""
BLOCKS: tuple[Blocks, ...] = get_args(Blocks)

Groups = Literal["q8", "q4"]
"""Groups of 64 values of a row with an f16 scale and an f16 minimum (PARK-34)."""

KvFormat = Literal["f32", "f16", "bf16", "q8_0"]
"""The formats that attention reads. `q8_0`: a head's row of one token in groups of 32, 8 bits a value and an f16 scale
a group."""
KV_FORMATS: tuple[KvFormat, ...] = (*FORMATS, "q8_0")

KeptFormat = Literal["f32", "f16", "bf16", "q8_0", "q4"]
"""The formats that caches are kept in: as attention reads them, or in 4-bit groups that are expanded first
(PARK-34)."""

StoredFormat = Literal[Format, Blocks, Groups]
"""The formats that weights are kept in, and multiplied as."""
STORED_FORMATS: tuple[StoredFormat, ...] = get_args(StoredFormat)

Precision = Literal["f32", "bf16", "int16", "int8"]
"""The numbers that activations are rounded to where they meet a matrix: `bf16` to that format; `int16`, `int8` to whole
numbers of so many bits under a scale per 32 of a row."""
PRECISIONS: tuple[Precision, ...] = ("f32", "bf16", "int16", "int8")

FileFormat = Literal[Format, Blocks, "q4_k_m"]
"""The formats that checkpoints are written in. `q4_k_m`: q4_k, q6_k where llama.cpp's files of that name have it, and
q8_0 for rows that are whole blocks of neither."""
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)

_OTHER_NAMES = {"fp32": "f32", "float32": "f32", "fp16": "f16", "float16": "f16", "half": "f16", "bfloat16": "bf16"}


def format_named(text: str) -> str:
    """Return the name that a format has here: `Q4_K_M` and `FP16` are written for q4_k_m and f16."""
    name = text.lower()
    return _OTHER_NAMES.get(name, name)


class FormatFacts(NamedTuple):
    """`values` of a row are stored together in `size` bytes.

    `gguf_file`: llama.cpp's number of files that have most matrices so; None where it has none. `nearest`: what is
    nearest and has shorter blocks, where rows are not whole blocks; the last takes any number of columns."""

    values: int
    size: int
    gguf_file: int | None
    nearest: tuple[StoredFormat, ...] = ()


FORMAT_FACTS: dict[StoredFormat, FormatFacts] = {
    "f32": FormatFacts(1, 4, 0),
    "f16": FormatFacts(1, 2, 1),
    "bf16": FormatFacts(1, 2, 32),
    "q8_0": FormatFacts(32, 34, 7, ("q8",)),
    "q4_0": FormatFacts(32, 18, 2, ("q4",)),
    "q4_k": FormatFacts(256, 144, 14, ("q4_0", "q4")),
    "q6_k": FormatFacts(256, 210, 18, ("q8_0", "q8")),
    "q8": FormatFacts(64, 68, None),
    "q4": FormatFacts(64, 36, None),
}
"""One row for every format that weights are kept in; native code has its own in csrc/formats/format.h."""

Q4_CODES = 16
"""Values of a row in 4-bit groups whose codes are stored together."""


def is_plain(fmt: StoredFormat) -> TypeIs[Format]:
    """Whether values are stored one by one."""
    return fmt in FORMATS


def block_of(fmt: StoredFormat) -> int:
    """How many columns of a matrix make a block: their number is a multiple of it; 1 where any number will do."""
    return FORMAT_FACTS[fmt].values if fmt in BLOCKS else 1


def rows_size(rows: int, width: int, fmt: StoredFormat) -> int:
    """Return bytes of cached rows: a token's `width` values of one head. Groups never cross rows, so that appending a
    token touches no other's; the last 4-bit group of a row may be shorter."""
    if fmt == "q4":
        return rows * (-(-width // FORMAT_FACTS[fmt].values) * 4 + -(-width // Q4_CODES) * Q4_CODES // 2)
    return rows * size_of(width, fmt)


def size_of(elements: int, fmt: StoredFormat) -> int:
    """Return bytes that `elements` values take in `fmt`; blocks are counted whole."""
    facts = FORMAT_FACTS[fmt]
    return -(-elements // facts.values) * facts.size


def same_size(one: StoredFormat, other: StoredFormat) -> bool:
    """Whether what was measured in one format stands for the other: equal ones, and plain ones of equal size."""
    return one == other or (is_plain(one) and is_plain(other) and size_of(1, one) == size_of(1, other))
