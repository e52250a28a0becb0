"""Headers of GGUF files: everything is checked against the size of the file, and nothing wrong gets through."""

import random
import struct
import tracemalloc
from itertools import pairwise

import pytest
from gguf_bytes import array, gguf, info, string, text, u32
from together import together

from helmsman.hwdb.gguf_header import Array, Header, integers, read_header, shortest, strings
from helmsman.schemas.errors import BadInputError

PAIRS = {
    "general.architecture": string("llama"),
    "a.flag": struct.pack("<IB", 7, 1),
    "a.real": struct.pack("<If", 6, 1e-6),
    "a.double": struct.pack("<Id", 12, 0.1),
    "a.small": struct.pack("<Ib", 1, -3),
    "a.large": struct.pack("<IQ", 10, 2**63),
    "a.words": array(8, 3, text("one") + text("") + text("\N{GREEK SMALL LETTER PI}")),
    "a.numbers": array(5, 3, struct.pack("<3i", 1, -2, 3)),
}
INFOS = [info("matrix", (2, 32), 8), info("vector", (3,), 0, 96)]
GOOD = gguf(PAIRS, INFOS, 96 + 32)


def test_every_kind_of_value_is_read() -> None:
    header = read_header(GOOD, "f")
    found = {key: value for key, value in header.metadata.items() if not isinstance(value, Array)}
    assert found == {"general.architecture": "llama", "a.flag": True, "a.real": 1e-6, "a.double": 0.1,
                     "a.small": -3, "a.large": 2**63}  # fmt: skip
    words, numbers = header.metadata["a.words"], header.metadata["a.numbers"]
    assert isinstance(words, Array) and isinstance(numbers, Array)
    assert list(strings(GOOD, words, "f", "a.words")) == ["one", "", "\N{GREEK SMALL LETTER PI}"]
    assert integers(GOOD, numbers, "f", "a.numbers") == (1, -2, 3)
    with pytest.raises(BadInputError, match="an array of texts"):
        list(strings(GOOD, numbers, "f", "a.numbers"))
    with pytest.raises(BadInputError, match="an array of whole numbers"):
        integers(GOOD, words, "f", "a.words")


def test_tensors_have_rows_first_and_their_bytes() -> None:
    places = read_header(GOOD, "f").tensors
    base = len(GOOD) - 128
    matrix, vector = places["matrix"], places["vector"]
    assert (matrix.type.name, matrix.shape, matrix.start, matrix.end) == ("q8_0", (2, 32), base, base + 68)
    assert (vector.type.name, vector.shape, vector.start, vector.end) == ("f32", (3,), base + 96, base + 108)


def test_version_2_is_read_too() -> None:
    assert read_header(gguf(PAIRS, INFOS, 128, version=2), "f") == read_header(GOOD, "f")


def test_another_alignment_moves_the_data() -> None:
    aligned = gguf({"general.alignment": u32(64)}, [info("a")])
    assert read_header(aligned + bytes(64), "f").tensors["a"].start % 64 == 0


WRONG = {
    "empty": (b"", "truncated"),
    "other file": (b"PK\3\4" + bytes(60), "not a GGUF file"),
    "version 1": (gguf(version=1), "version 2 or 3 is expected, not 1"),
    "big-endian": (gguf(version=3 << 24), "big-endian"),
    "pairs beyond": (gguf(count=2**62), "items do not fit"),
    "tensors beyond": (gguf(tensors=2**62), "items do not fit"),
    "key twice": (gguf([("a", u32(1)), ("a", u32(2))]), "a: twice in the metadata"),
    "unknown kind": (gguf({"a": struct.pack("<I", 13)}), "a: a value of unknown kind"),
    "boolean 2": (gguf({"a": struct.pack("<IB", 7, 2)}), "a: a boolean is 0 or 1"),
    "text beyond": (gguf({"a": struct.pack("<IQ", 8, 2**60)}), "a: truncated"),
    "not UTF-8": (gguf({"a": struct.pack("<I", 8) + text(b"\xff\xfe")}), "a: not UTF-8"),
    "long key": (gguf([("k" * 70_000, u32(1))]), "at most 65535 bytes"),
    "array beyond": (gguf({"a": array(10, 2**61, b"")}), "a: truncated"),
    "texts beyond": (gguf({"a": array(8, 2**61, b"")}), "a: truncated"),
    "nested": (gguf({"a": array(9, 1, bytes(12))}), "arrays of arrays"),
    "array of unknown": (gguf({"a": array(77, 1, bytes(12))}), "an array of unknown kind"),
    "name twice": (gguf({}, [info("a"), info("a", offset=32)]), "a: two tensors have this name"),
    "long name": (gguf({}, [info("n" * 65)]), "at most 64 bytes"),
    "no dimension": (gguf({}, [info("a", ())]), "1 to 4 dimensions"),
    "five dimensions": (gguf({}, [info("a", (1,) * 5)]), "1 to 4 dimensions"),
    "zero": (gguf({}, [info("a", (0, 4))]), "whole blocks"),
    "no whole block": (gguf({}, [info("a", (2, 33), 8)]), "whole blocks of 32"),
    "unknown type": (gguf({}, [info("a", (4,), 4)]), "a data type that is not known"),
    "huge": (gguf({}, [info("a", (2**40, 2**40))]), "a: truncated: "),
    "beyond": (gguf({}, [info("a", offset=64)]), "a: truncated: "),
    "unaligned": (gguf({}, [info("a", offset=8)]), "not aligned to 32"),
    "overlap": (gguf({}, [info("a", (16,)), info("b", (4,), offset=32)]), "b: its data overlaps that of a"),
    "alignment 24": (gguf({"general.alignment": u32(24)}), "general.alignment: a power of two"),
    "alignment 0": (gguf({"general.alignment": u32(0)}), "general.alignment: a power of two"),
    "alignment text": (gguf({"general.alignment": string("32")}), "general.alignment: a power of two"),
}  # fmt: skip


@together("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    data, says = WRONG[case]
    with pytest.raises(BadInputError, match=says) as error:
        read_header(data, "file.gguf")
    assert error.value.file == "file.gguf" and error.value.remedy


def test_every_truncation_is_refused() -> None:
    for size in range(len(GOOD) - 20):  # the last bytes are padding behind the last tensor
        with pytest.raises(BadInputError, match=r"truncated|not a GGUF"):
            read_header(GOOD[:size], "f")


def test_mutations_are_an_error_or_another_content_and_need_no_memory() -> None:
    generator, refused, end = random.Random(0), 0, len(GOOD) - 128
    tracemalloc.start()
    try:
        for number in range(800):
            mutant = bytearray(GOOD)
            first = generator.randrange(end)
            width = 1 if number % 2 else generator.randrange(2, 9)
            mutant[first : first + width] = generator.choice((b"\xff", b"\0", generator.randbytes(1))) * width
            try:
                check_inside(read_header(bytes(mutant), "f"), len(mutant))
            except BadInputError:
                refused += 1
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
    assert 200 < refused < 800


def check_inside(header: Header, size: int) -> None:
    """Whatever was accepted lies in the file, and no tensor over another."""
    places = sorted((place.start, place.end) for place in header.tensors.values())
    assert all(0 < start < end <= size for start, end in places)
    assert all(before[1] <= after[0] for before, after in pairwise(places))
    arrays = [value for value in header.metadata.values() if isinstance(value, Array)]
    assert all(0 < value.start <= value.end <= size for value in arrays)


@pytest.mark.parametrize("value", [1e-6, 1e-5, 0.1, 10_000.0, 5e5, 1.0192, 3.4028235e38, 0.0, -2.5])
def test_single_precision_gives_back_the_number_that_was_meant(value: float) -> None:
    assert shortest(struct.unpack("<f", struct.pack("<f", value))[0]) == value


def test_scales_before_every_row_are_counted() -> None:
    """ik_llama.cpp's iq4_ks has four bytes before the blocks of a row."""
    content = gguf({"general.architecture": string("llama")}, [info("a", (3, 512), kind=144)], data=0)
    place = read_header(content, "m.gguf", len(content) + 3 * (4 + 2 * 136)).tensors["a"]
    assert place.type.name == "iq4_ks" and place.end - place.start == 3 * (4 + 2 * 136)
