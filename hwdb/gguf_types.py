"""The element types of GGUF files: how many values a block holds and how many bytes it takes."""

from dataclasses import dataclass
from typing import get_args

from helmsman.schemas.formats import BLOCKS, FORMATS, Micro


@dataclass(frozen=True, slots=True)
class BlockType:
    """`values` of a row are stored together in `bytes`; `name` as Helm's formats are called; `row`: bytes of a scale
    before every row."""

    name: str
    values: int
    bytes: int
    row: int = 0

    def size(self, elements: int, rows: int = 1) -> int:
        """Return bytes of `elements` values, which are whole blocks, in so many rows."""
        return elements // self.values * self.bytes + rows * self.row


BLOCK_TYPES: dict[int, BlockType] = {
    number: BlockType(name, values, size, *row)
    for number, name, values, size, *row in (
        (0, "f32", 1, 4),
        (1, "f16", 1, 2),
        (2, "q4_0", 32, 18),
        (3, "q4_1", 32, 20),
        (6, "q5_0", 32, 22),
        (7, "q5_1", 32, 24),
        (8, "q8_0", 32, 34),
        (9, "q8_1", 32, 36),
        (10, "q2_k", 256, 84),
        (11, "q3_k", 256, 110),
        (12, "q4_k", 256, 144),
        (13, "q5_k", 256, 176),
        (14, "q6_k", 256, 210),
        (15, "q8_k", 256, 292),
        (16, "iq2_xxs", 256, 66),
        (17, "iq2_xs", 256, 74),
        (18, "iq3_xxs", 256, 98),
        (19, "iq1_s", 256, 50),
        (20, "iq4_nl", 32, 18),
        (21, "iq3_s", 256, 110),
        (22, "iq2_s", 256, 82),
        (23, "iq4_xs", 256, 136),
        (24, "i8", 1, 1),
        (25, "i16", 1, 2),
        (26, "i32", 1, 4),
        (27, "i64", 1, 8),
        (28, "f64", 1, 8),
        (29, "iq1_m", 256, 56),
        (30, "bf16", 1, 2),
        (34, "tq1_0", 256, 54),
        (35, "tq2_0", 256, 66),
        (39, "mxfp4", 32, 17),
        (40, "nvfp4", 64, 36),
        (41, "q1_0", 128, 18),
        (133, "q6_0", 32, 26),
        (137, "iq2_k", 256, 76),
        (138, "iq3_k", 256, 110),
        (139, "iq4_k", 256, 144),
        (140, "iq5_k", 256, 176),
        (141, "iq6_k", 256, 212),
        (144, "iq4_ks", 256, 136, 4),
        (145, "iq2_ks", 256, 70, 2),
        (146, "iq4_kss", 256, 128, 4),
        (152, "iq5_ks", 256, 168, 4),
        (153, "iq2_kt", 256, 68, 4),
        (154, "iq3_kt", 256, 100, 4),
        (155, "iq4_kt", 256, 128, 4),
        (156, "iq3_ks", 256, 102, 2),
        (157, "iq2_kl", 256, 86, 2),
        (158, "iq1_kt", 256, 56, 4),
    )
}
"""By the number that files use (ggml's `ggml_type`); numbers that are missing were withdrawn; from 133 on
they are those of ik_llama.cpp."""

READ = (*FORMATS, *BLOCKS, *get_args(Micro))
"""Types whose matrices can be used."""
