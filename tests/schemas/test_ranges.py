"""Ranges of values as people write them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helmsman.schemas.errors import UsageError
from helmsman.schemas.ranges import MOST_VALUES, values_of
from helmsman.schemas.units import parse_bytes, parse_rate


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1..64", (1, 2, 4, 8, 16, 32, 64)),
        ("3..20", (3, 6, 12, 20)),
        ("5..5", (5,)),
        ("512..2048/512", (512, 1024, 1536, 2048)),
        ("512..2000/512", (512, 1024, 1536, 2000)),
    ],
)
def test_whole_numbers_double_or_go_in_steps_and_end_at_the_last(text: str, values: tuple[int, ...]) -> None:
    assert values_of(text, int, "batch") == values


def test_units_may_be_on_the_last_number_alone_or_on_every_one() -> None:
    sizes = (8 * 10**9, 12 * 10**9, 16 * 10**9)
    for text in ("8..16GB/4GB", "8GB..16GB/4GB", "8..16GB/4", "8 .. 16 GB / 4 GB"):
        assert values_of(text, lambda number: parse_bytes(number, "vram"), "vram") == sizes
    rates = values_of("20..40GB/s/10GB/s", lambda number: parse_rate(number, "link"), "link")
    assert rates == (20e9, 30e9, 40e9)


@pytest.mark.parametrize("text", ["..", "1..", "..5", "8..4", "0..4", "1..2/0", "a..b", "1..2/-1", "1...4"])
def test_what_is_no_range_is_refused_with_an_example(text: str) -> None:
    with pytest.raises((UsageError, ValueError)):
        values_of(text, int, "batch")


def test_a_range_of_a_billion_values_is_refused_before_it_is_made() -> None:
    with pytest.raises(UsageError, match=str(MOST_VALUES)):
        values_of("1..1000000000/1", int, "batch")


@given(first=st.integers(1, 10**6), more=st.integers(0, 10**6))
def test_doubling_stays_within_its_ends_and_rises(first: int, more: int) -> None:
    values = values_of(f"{first}..{first + more}", int, "batch")
    assert values[0] == first and values[-1] == first + more
    assert all(before < after <= 2 * before for before, after in pairwise(values))
