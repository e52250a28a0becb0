"""Rows of caches in 4-bit groups, and rows turned to what attention reads, against numpy."""

import os
from functools import cache
from typing import Any

import numpy as np
import pytest
from daily import one_in

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool
from helmsman.executor.devices.memory import view
from helmsman.schemas.formats import FORMATS, Format, rows_size, size_of

WIDTHS = (8, 16, 24, 40, 64, 80, 128)
SHAPES = ((1, 1, 40, 33), (1, 1, 300, 261), (2, 3, 100, 97), (1, 2, 64, 64), (3, 2, 20, 1), (2, 1, 16, 0))
"""Sequences, heads, capacity, tokens: whole tiles of 16 and 128, parts of them, one token, none."""

UNTOUCHED = 7


@pytest.fixture(scope="module")
def pool() -> Pool:
    cpus = sorted(os.sched_getaffinity(0))
    return Pool([cpus[0], cpus[-1]])


def buffer(size: int) -> Buffer:
    return Arena(size + 128).alloc(size, "rows")


@cache
def compressed(shape: tuple[int, int, int, int], width: int) -> Buffer:
    """The rows (..., width) of `values_of` the same, one after the other; they are only read."""
    return packed(values_of(shape, width))


def packed(values: Any) -> Buffer:
    """The rows (..., width) one after the other."""
    rows, width = values.size // values.shape[-1], values.shape[-1]
    found = buffer(rows * kernels.q4_row_size(width))
    kernels.compress_rows(np.ascontiguousarray(values), found, rows, width)
    return found


def quantised(row: Any) -> Any:
    """One row as its groups stand for it, in numpy."""
    found = []
    for first in range(0, len(row), 64):
        group = row[first : first + 64]
        low = np.float16(group.min())
        low = np.nextafter(low, np.float16(-np.inf)) if np.float32(low) > group.min() else low
        scale = np.float32(np.float16((group.max() - np.float32(low)) / np.float32(15)))
        codes = np.minimum(15, np.round((group - np.float32(low)) / scale)) if scale else 0 * group
        found.append(codes * scale + np.float32(low))
    return np.concatenate(found)


def rounded(values: Any, fmt: Format) -> Any:
    if fmt == "bf16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values.astype({"f32": np.float32, "f16": np.float16}[fmt])


def values_of(shape: tuple[int, int, int, int], width: int) -> Any:
    sequences, heads, capacity, _ = shape
    return 3 * np.random.default_rng(width).standard_normal((sequences, heads, capacity, width)).astype(np.float32)


@cache
def groups_of(shape: tuple[int, int, int, int], width: int) -> Any:
    """What the groups of `values_of` the same stand for; whoever turns them, they are the same."""
    values = values_of(shape, width)
    return np.stack([quantised(each) for each in values.reshape(-1, width)]).reshape(values.shape)


def turned(
    pool: Pool,
    source: Buffer,
    steps: tuple[int, int, int],
    shape: Any,
    width: int,
    stored: Any,
    fmt: Format,
    lines: Any,
) -> Any:
    """(sequences, heads, capacity, width) as turned; what was not written is UNTOUCHED in every byte."""
    sequences, heads, capacity, tokens = shape
    size = size_of(1, fmt)
    target = buffer(sequences * heads * capacity * width * size)
    view(target, np.uint8)[:] = UNTOUCHED
    to = heads * capacity * width * size, capacity * width * size, (capacity if lines else width) * size
    kernels.turn_rows(pool, source, 0, steps, target, 0, to, (sequences, heads, tokens, width), stored, fmt, lines)
    dtype = rounded(np.zeros(1, np.float32), fmt).dtype
    last = (width, capacity) if lines else (capacity, width)
    found = view(target, dtype).reshape(sequences, heads, *last)
    return found.swapaxes(2, 3) if lines else found


def check(found: Any, wanted: Any, tokens: int) -> None:
    np.testing.assert_array_equal(found[:, :, :tokens], wanted[:, :, :tokens])
    assert (np.ascontiguousarray(found[:, :, tokens:]).view(np.uint8) == UNTOUCHED).all()


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("fmt", one_in(2, FORMATS))
def test_groups_become_what_they_stand_for(base_isa: str, pool: Pool, fmt: Format, lines: bool) -> None:
    for width in WIDTHS:
        row = kernels.q4_row_size(width)
        assert row == rows_size(1, width, "q4")
        for shape in SHAPES:
            steps = shape[1] * shape[2] * row, shape[2] * row, row
            found = turned(pool, compressed(shape, width), steps, shape, width, "q4", fmt, lines)
            check(found, rounded(groups_of(shape, width), fmt), shape[3])


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("fmt", one_in(2, FORMATS))
def test_plain_rows_are_turned(base_isa: str, pool: Pool, fmt: Format, lines: bool) -> None:
    """Kept (sequences, tokens, heads, width), as a layer makes them."""
    for width in WIDTHS:
        for shape in SHAPES:
            wanted = rounded(values_of(shape, width), fmt)
            kept, row = np.ascontiguousarray(wanted.swapaxes(1, 2)), width * size_of(1, fmt)
            source = buffer(kept.nbytes)
            view(source, kept.dtype)[:] = kept.ravel()
            steps = shape[2] * shape[1] * row, row, shape[1] * row
            check(turned(pool, source, steps, shape, width, fmt, fmt, lines), wanted, shape[3])


def test_all_instruction_sets_quantise_alike() -> None:
    rng, before = np.random.default_rng(5), kernels.isa()
    values = rng.standard_normal((50, 80)).astype(np.float32) * 10.0 ** rng.uniform(-9, 5, (50, 1)).astype(np.float32)
    found = []
    for isa in kernels.supported_isas():
        kernels.select_isa(isa)
        found.append(bytes(memoryview(packed(values))))
    kernels.select_isa(before)
    assert len(set(found)) == 1


def test_extreme_groups(base_isa: str, pool: Pool) -> None:
    rows = np.zeros((6, 64), np.float32)
    rows[1] = 5.0
    rows[2, ::2] = 1e9
    rows[3] = -1e9
    rows[4, 1] = 1e-9
    rows[5, :2] = -65504, 65504
    row = kernels.q4_row_size(64)
    found = turned(pool, packed(rows), (0, 0, row), (1, 1, 6, 6), 64, "q4", "f32", False)[0, 0]
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 65504
    np.testing.assert_array_equal(found[:2], rows[:2])
    np.testing.assert_array_equal(found[3], np.full(64, -65504, np.float32))
    assert found[2, 0] > 65000 > found[2, 1] + 65000 - 1
    assert np.abs(found[4]).max() < 1e-6
    assert found[5, 0] == -65504 and found[5, 1] > 65000


def test_appending_leaves_other_tokens_alone(pool: Pool) -> None:
    """A row is quantised when it comes, and is the same whatever comes after it."""
    values = values_of((1, 1, 70, 70), 40)[0, 0]
    row = kernels.q4_row_size(40)
    whole = bytes(memoryview(packed(values)))
    one_by_one = b"".join(bytes(memoryview(packed(values[token : token + 1]))) for token in range(70))
    assert whole[: 70 * row] == one_by_one[: 70 * row]


def test_bad_turns_are_refused(pool: Pool) -> None:
    source, target = buffer(36 * 8), buffer(64 * 8 * 4)
    good: dict[str, Any] = {
        "source_strides": (0, 0, 36), "target_strides": (0, 0, 256), "counts": (1, 1, 8, 64), "stored": "q4",
        "fmt": "f32", "transposed": False,
    }  # fmt: skip
    for change, says in (
        ({"counts": (1, 1, 9, 64)}, "source|do not"),
        ({"counts": (1, 1, 8)}, "four counts"),
        ({"target_strides": (0, 0, 512)}, "target"),
        ({"stored": "f16"}, "do not become"),
        ({"transposed": True, "target_strides": (0, 0, 30)}, "whole values"),
        ({"source_strides": (0, 0, -1)}, "source_strides"),
    ):
        call = good | change
        with pytest.raises(ValueError, match=says):
            kernels.turn_rows(
                pool, source, 0, call["source_strides"], target, 0, call["target_strides"], call["counts"],
                call["stored"], call["fmt"], call["transposed"],
            )  # fmt: skip
