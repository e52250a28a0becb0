"""How a number is stored: the formats of weights, KV and activations, and their exact sizes."""

from typing import Literal, NamedTuple, get_args

from typing_extensions import TypeIs

from helmsman.schemas.errors import UsageError

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

OtherBlocks = Literal[
    "q4_1", "q5_0", "q5_1", "q6_0", "q1_0", "q2_k", "q3_k", "q5_k", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s",
    "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "iq2_k", "iq3_k", "iq4_k", "iq5_k", "iq6_k", "iq2_ks", "iq3_ks", "iq4_ks",
    "iq4_kss", "iq5_ks", "iq2_kl", "iq1_kt", "iq2_kt", "iq3_kt", "iq4_kt", "tq1_0", "tq2_0", "mxfp4", "nvfp4",
]  # fmt: skip
"""Blocks of files that are planned as they are, and that nothing here multiplies but `mxfp4`: those of llama.cpp, and
of ik_llama.cpp (`iq2_k` to `iq4_kt`), some of which have 2 or 4 bytes before every row that are not counted here."""
OTHER_BLOCKS: tuple[OtherBlocks, ...] = get_args(OtherBlocks)

ScaledFormat = Literal[
    "fp8", "fp8_block", "int4_g32", "int4_g64", "int4_g128", "uint4_g32", "uint4_g64", "uint4_g128", "uint8_g128"
]
"""Numbers of Hugging Face checkpoints whose scales are tensors of their own, planned and not multiplied: `fp8_block`:
with an f32 scale for 128 x 128 values; `int4_g32`: with a 16-bit scale for 32 values; `uint4_g32`: with a 4-bit zero
point too (AWQ, GPTQ)."""
SCALED_FORMATS: tuple[ScaledFormat, ...] = get_args(ScaledFormat)

MultipliedFormat = Literal[Format, Blocks, Groups]
"""The formats that weights are kept in, and multiplied as: those that questions name."""
STORED_FORMATS: tuple[MultipliedFormat, ...] = get_args(MultipliedFormat)

StoredFormat = Literal[MultipliedFormat, OtherBlocks, ScaledFormat]
"""The formats that weights are kept in; `FORMAT_FACTS` says which of them are multiplied."""

NamedMix = Literal[
    "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m", "iq3_xxs", "iq3_xs", "iq3_s", "iq3_m", "iq4_xs", "iq4_nl",
    "q2_k", "q2_k_s", "q3_k_s", "q3_k_m", "q3_k_l", "q4_1", "q4_k_s", "q4_k_m", "q5_0", "q5_1", "q5_k_s", "q5_k_m",
    "mxfp4",
]  # fmt: skip
"""Mixtures of formats by the names of llama.cpp's files (`lowering.named_mixes`); `mxfp4`: its MXFP4_MOE."""
NAMED_MIXES: tuple[NamedMix, ...] = get_args(NamedMix)

WeightsFormat = Literal[MultipliedFormat, NamedMix]
"""The formats of weights that questions name: one for all matrices, or a mixture."""
WEIGHTS_FORMATS: tuple[WeightsFormat, ...] = get_args(WeightsFormat)

NATIVE = "native"
"""Names the formats that a model's own files or config say, each matrix in its own."""

Precision = Literal["f32", "bf16", "int16", "int8"]
"""The numbers that activations are rounded to where they meet a matrix: `bf16` to that format, as are the values of
quantised weights that they meet; `int16`, `int8` to whole numbers of so many bits under a scale per 32 of a row."""
PRECISIONS: tuple[Precision, ...] = ("f32", "bf16", "int16", "int8")

Micro = Literal["mxfp4"]
"""Blocks of 32 4-bit numbers under a power of two, of experts alone (OCP Microscaling Formats)."""

FileFormat = Literal[Format, Blocks, Micro, "q4_k_m"]
"""The formats that checkpoints are written in. `mxfp4`: experts in it, other matrices in q8_0 (llama.cpp's MXFP4_MOE);
`q4_k_m`: q4_k, q6_k where llama.cpp's files of that name have it, and
q8_0 for rows that are whole blocks of neither."""
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)

_MADE_BY_HAND = "ud-"
"""How names of mixtures begin that their makers choose for every model anew (Unsloth Dynamic)."""

_OTHER_NAMES = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "fp16": "f16",
    "fp32": "f32",
    "half": "f16",
    "mxfp4_moe": "mxfp4",
}


def format_named(text: str) -> str:
    """Return the name that a format has here: `Q4_K_M` and `FP16` are written for q4_k_m and f16.

    Raises UsageError for mixtures that no rule tells."""
    name = text.lower()
    if name.startswith(_MADE_BY_HAND):
        message, remedy = "a mixture of its own for every model", "plan the GGUF file itself: name it as the model"
        raise UsageError(message, field="format", value=text, remedy=remedy)
    return _OTHER_NAMES.get(name, name)


class FormatFacts(NamedTuple):
    """`values` of a row are stored together in `size` bytes.

    `gguf_file`: llama.cpp's number of files that have most matrices so; None where it has none. `nearest`: what is
    nearest and has shorter blocks, where rows are not whole blocks; the last takes any number of columns. `runs`:
    whether kernels multiply it; others are planned alone."""

    values: int
    size: int
    gguf_file: int | None
    nearest: tuple[StoredFormat, ...] = ()
    runs: bool = True


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
    "q4_1": FormatFacts(32, 20, 3, ("q4",), False),
    "q5_0": FormatFacts(32, 22, 8, ("q8",), False),
    "q5_1": FormatFacts(32, 24, 9, ("q8",), False),
    "q2_k": FormatFacts(256, 84, 10, ("q4_0", "q4"), False),
    "q3_k": FormatFacts(256, 110, 11, ("q4_0", "q4"), False),
    "q5_k": FormatFacts(256, 176, 16, ("q8_0", "q8"), False),
    "iq1_s": FormatFacts(256, 50, 24, ("q4_0", "q4"), False),
    "iq1_m": FormatFacts(256, 56, 31, ("q4_0", "q4"), False),
    "iq2_xxs": FormatFacts(256, 66, 19, ("q4_0", "q4"), False),
    "iq2_xs": FormatFacts(256, 74, 20, ("q4_0", "q4"), False),
    "iq2_s": FormatFacts(256, 82, 28, ("q4_0", "q4"), False),
    "iq3_xxs": FormatFacts(256, 98, 23, ("q4_0", "q4"), False),
    "iq3_s": FormatFacts(256, 110, 26, ("q4_0", "q4"), False),
    "iq4_nl": FormatFacts(32, 18, 25, ("q4",), False),
    "iq4_xs": FormatFacts(256, 136, 30, ("q4_0", "q4"), False),
    "iq2_k": FormatFacts(256, 76, None, ("q4_0", "q4"), False),
    "iq3_k": FormatFacts(256, 110, None, ("q4_0", "q4"), False),
    "iq4_k": FormatFacts(256, 144, None, ("q4_0", "q4"), False),
    "iq5_k": FormatFacts(256, 176, None, ("q8_0", "q8"), False),
    "iq6_k": FormatFacts(256, 212, None, ("q8_0", "q8"), False),
    "iq2_ks": FormatFacts(256, 70, None, ("q4_0", "q4"), False),
    "iq3_ks": FormatFacts(256, 102, None, ("q4_0", "q4"), False),
    "iq4_ks": FormatFacts(256, 136, None, ("q4_0", "q4"), False),
    "iq4_kss": FormatFacts(256, 128, None, ("q4_0", "q4"), False),
    "iq5_ks": FormatFacts(256, 168, None, ("q8_0", "q8"), False),
    "iq2_kl": FormatFacts(256, 86, None, ("q4_0", "q4"), False),
    "iq1_kt": FormatFacts(256, 56, None, ("q4_0", "q4"), False),
    "iq2_kt": FormatFacts(256, 68, None, ("q4_0", "q4"), False),
    "iq3_kt": FormatFacts(256, 100, None, ("q4_0", "q4"), False),
    "iq4_kt": FormatFacts(256, 128, None, ("q4_0", "q4"), False),
    "q6_0": FormatFacts(32, 26, None, ("q8",), False),
    "q1_0": FormatFacts(128, 18, 40, ("q4_0", "q4"), False),
    "tq1_0": FormatFacts(256, 54, 36, ("q4_0", "q4"), False),
    "tq2_0": FormatFacts(256, 66, 37, ("q4_0", "q4"), False),
    "mxfp4": FormatFacts(32, 17, 38, ("q4",)),
    "nvfp4": FormatFacts(16, 9, 39, ("q4",), False),
    "fp8": FormatFacts(1, 1, None, (), False),
    "fp8_block": FormatFacts(128 * 128, 128 * 128 + 4, None, (), False),
    "int4_g32": FormatFacts(32, 18, None, (), False),
    "int4_g64": FormatFacts(64, 34, None, (), False),
    "int4_g128": FormatFacts(128, 66, None, (), False),
    "uint4_g32": FormatFacts(64, 37, None, (), False),
    "uint4_g64": FormatFacts(128, 69, None, (), False),
    "uint4_g128": FormatFacts(256, 133, None, (), False),
    "uint8_g128": FormatFacts(128, 131, None, (), False),
}
"""One row for every format that weights are kept in; native code has its own in csrc/formats/format.h."""

Q4_CODES = 16
"""Values of a row in 4-bit groups whose codes are stored together."""


def is_plain(fmt: StoredFormat) -> TypeIs[Format]:
    """Whether values are stored one by one."""
    return fmt in FORMATS


def is_small(fmt: StoredFormat) -> bool:
    """Return whether a weight takes fewer than five bits in the format, with its share of scales."""
    facts = FORMAT_FACTS[fmt]
    return facts.size * 8 < 5 * facts.values


def block_of(fmt: StoredFormat) -> int:
    """How many columns of a matrix make a block: their number is a multiple of it; 1 where any number will do."""
    return FORMAT_FACTS[fmt].values if fmt in (*BLOCKS, *OTHER_BLOCKS) else 1


def runs(fmt: StoredFormat) -> bool:
    """Whether kernels multiply weights in this format; others are planned alone."""
    return FORMAT_FACTS[fmt].runs


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
