"""The element types of GGUF files: how many values a block holds and how many bytes it takes."""

from dataclasses import dataclass

from helmsman.schemas.formats import BLOCKS, FORMATS


@dataclass(frozen=True, slots=True)
class BlockType:
    """`values` of a row are stored together in `bytes`; `name` as Helm's formats are called."""

    name: str
    values: int
    bytes: int

    def size(self, elements: int) -> int:
        """Return bytes of `elements` values, which are whole blocks."""
        return elements // self.values * self.bytes


BLOCK_TYPES: dict[int, BlockType] = {
    number: BlockType(name, values, size)
    for number, name, values, size in (
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
    )
}
"""By the number that files use (ggml's `ggml_type`); numbers that are missing were withdrawn."""

READ = (*FORMATS, *BLOCKS)
"""Types whose matrices can be used."""
