"""Quantities: parsed exactly, printed for people, refused with a remedy."""

import pytest

from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import size_of
from helmsman.schemas.units import (
    format_bytes,
    format_number,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_capacity,
    parse_rate,
    parse_seconds,
)


def test_sizes_are_decimal_or_binary_as_written():
    assert [parse_bytes(t, "x") for t in ("64GB", "512MiB", "7 gib", "1.5KB", "12")] == [
        64 * 10**9, 512 * 2**20, 7 * 2**30, 1500, 12,
    ]  # fmt: skip


def test_rates_and_times_are_exact():
    assert [parse_rate(t, "x") for t in ("2GB/s", "16GB", "1GiB/s")] == [2e9, 16e9, 2.0**30]
    assert [parse_seconds(t, "x") for t in ("20us", "1.5ms", "2s", "5", "40ns")] == [20e-6, 1.5e-3, 2.0, 5.0, 40e-9]


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 GB s", "1XB", "nan", "inf", "1e", "0x10"])
def test_other_text_is_refused_with_field_and_remedy(text):
    for parse in (parse_bytes, parse_rate, parse_seconds):
        with pytest.raises(UsageError) as caught:
            parse(text, "--ram")
        assert caught.value.field == "--ram"
        assert caught.value.remedy


@pytest.mark.parametrize("text", ["1e400GB", "1e30", "2000000TiB", "1152921504606846977TB"])
def test_a_size_beyond_any_memory_is_refused(text):
    with pytest.raises(UsageError, match="too large") as caught:
        parse_bytes(text, "--ram")
    assert (caught.value.field, caught.value.value, bool(caught.value.remedy)) == ("--ram", text, True)


def test_the_largest_size_is_accepted():
    assert parse_bytes("1048576TiB", "--ram") == 2**60


@pytest.mark.parametrize(
    ("parse", "text"), [(parse_rate, "1e400GB/s"), (parse_rate, "1e308TB/s"), (parse_seconds, "1e999s")]
)
def test_rates_and_times_are_finite(parse, text):
    with pytest.raises(UsageError, match="too large") as caught:
        parse(text, "--loopback")
    assert (caught.value.field, caught.value.value, bool(caught.value.remedy)) == ("--loopback", text, True)


def test_printing():
    assert [format_bytes(n) for n in (0, 999, 1500, 2.5e9, 3e12)] == ["0 B", "999 B", "1.50 kB", "2.50 GB", "3.00 TB"]
    assert format_rate(45e9) == "45.00 GB/s"
    assert [format_seconds(s) for s in (2.5, 0.0123, 4.5e-5, 3e-9)] == ["2.5 s", "12.3 ms", "45 us", "3 ns"]
    assert [format_seconds(s) for s in (9.996e-4, 0.9996, 999.6, 12345.0)] == ["1 ms", "1 s", "1000 s", "12345 s"]
    assert [format_number(n, 3) for n in (0.01234, 99.96, 999.6, 4678.4)] == ["0.0123", "100", "1000", "4678"]


def test_formats_have_exact_sizes():
    assert [size_of(10, fmt) for fmt in ("f32", "f16", "bf16")] == [40, 20, 20]


@pytest.mark.parametrize(
    ("text", "size"),
    [("64GB", 64 * 2**30), ("64 gib", 64 * 2**30), ("1.5TB", 3 * 2**39), ("512MB", 2**29), ("1024", 1024)],
)
def test_capacities_are_read_as_modules_and_cards_are_sold(text: str, size: int) -> None:
    assert parse_capacity(text, "ram") == size
