"""Quantised weights and caches as a PyTorch device reads and writes them: the host's bits."""

from typing import Any

import numpy as np
import pytest
import torch
from kv_rows import q8_rows, q8_values
from numpy.typing import NDArray
from together import together

from helmsman.executor._kernels import (
    Arena,
    Buffer,
    CopyEngine,
    Pool,
    compress_rows,
    decompress,
    pack,
    packed_size,
    q4_row_size,
    unpack,
)
from helmsman.executor.devices.move_calls import ExpansionMove
from helmsman.executor.devices.torch import probe
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.codes import pack_codes, unpack_codes
from helmsman.executor.devices.torch.expansion import expand
from helmsman.executor.devices.torch.groups import pack_groups, unpack_groups
from helmsman.executor.devices.torch.quantised import expand_panels, expand_rows
from helmsman.executor.devices.torch.weights import QuantisedWeight, weight_of
from helmsman.lowering.buffers import EXPANDED_VALUES, expanded_values
from helmsman.schemas.formats import StoredFormat

WHOLE = [(16, 256), (40, 768), (5, 512)]
SHAPES: list[tuple[StoredFormat, tuple[int, int]]] = [
    *((fmt, shape) for fmt in ("q8_0", "q4_0", "q4_k", "q6_k", "q8", "q4") for shape in WHOLE),
    *((fmt, shape) for fmt in ("q8", "q4") for shape in ((21, 100), (32, 64), (16, 40))),
]


def packed(fmt: StoredFormat, rows: int, columns: int) -> tuple[Buffer, NDArray[np.float32]]:
    """A random matrix, and what it stands for; some rows are zero or large."""
    values = np.random.default_rng(columns).standard_normal((rows, columns)).astype(np.float32)
    values[0], values[1] = 0, 3e4 * np.sign(values[1])
    size = packed_size(fmt, rows, columns)
    buffer, found = Arena(size).alloc(size, "packed"), np.empty((rows, columns), np.float32)
    pack(values, "f32", buffer, fmt, rows, columns)
    unpack(buffer, fmt, found, rows, columns)
    return buffer, found


def seen(buffer: Buffer) -> torch.Tensor:
    return torch.frombuffer(memoryview(buffer), dtype=torch.uint8)


@together(("fmt", "shape"), SHAPES)
def test_panels_stand_for_the_same_values(fmt: StoredFormat, shape: tuple[int, int]) -> None:
    buffer, expected = packed(fmt, *shape)
    values = torch.full((-(-shape[0] // 16), 16, shape[1]), torch.nan)
    expand_panels(seen(buffer).view(len(values), -1), fmt, values)
    assert np.array_equal(values.flatten(0, 1)[: shape[0]].numpy(), expected)
    assert not values.flatten(0, 1)[shape[0] :].isnan().any()


@together(("fmt", "shape"), SHAPES)
def test_rows_that_were_looked_up_stand_for_the_same_values(fmt: StoredFormat, shape: tuple[int, int]) -> None:
    (buffer, expected), (rows, columns) = packed(fmt, *shape), shape
    row = packed_size(fmt, 16, columns) // 16
    stored, ids = (Arena(64 + size).alloc(size, "rows") for size in (row * rows, 4 * rows))
    np.frombuffer(memoryview(ids), np.int32)[:] = np.arange(rows)[::-1]
    engine = CopyEngine(1e15, 0.0, -1)
    engine.wait(engine.submit_lookup(stored, 0, buffer, fmt, rows, columns, ids, rows))
    values = torch.full(shape, torch.nan)
    expand_rows(seen(stored).view(rows, row), fmt, values)
    assert np.array_equal(values.numpy(), expected[::-1])


def test_a_matrix_is_expanded_a_part_at_a_time() -> None:
    """Products and looked-up rows of a matrix that its space does not hold."""
    rows, columns = 100, 256
    buffer, expected = packed("q4_k", rows, columns)
    held = TorchBuffer(seen(buffer))
    whole = weight_of(held, "q4_k", rows, columns, torch.empty(expanded_values(rows, columns)))
    assert isinstance(whole, QuantisedWeight)
    x, ids = torch.randn(3, columns), torch.tensor([99, 0, 16, 15, 99])
    for most in (None, 1, 3):
        part: Any = whole if most is None else _Small(**vars(whole), most=most)
        part.multiply(x, made := torch.empty(3, rows))
        assert torch.allclose(made, x @ torch.from_numpy(expected).t(), rtol=1e-4, atol=1e-2)
        assert np.array_equal(part.rows_of(ids).numpy(), expected[ids.numpy()])


class _Small(QuantisedWeight):
    """One with room for `most` panels."""

    def __init__(self, most: int, **rest: Any) -> None:
        super().__init__(**rest)
        self.__dict__["most"] = most

    @property
    def _panels(self) -> int:
        return int(self.__dict__["most"])


@pytest.mark.parametrize("shape", [(1, 64), (151936, 4096), (4096, 14336), (3, 1 << 19)])
def test_expanded_values_are_bounded(shape: tuple[int, int]) -> None:
    rows, columns = shape
    found = expanded_values(rows, columns)
    assert found % (16 * columns) == 0
    assert 16 * columns <= found <= max(EXPANDED_VALUES, 16 * columns)


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
def test_groups_become_the_panels_of_the_host(fmt: Any) -> None:
    """Rounded once, whatever they become."""
    rows, columns = 21, 100
    buffer, _ = packed("q4", rows, columns)
    size = packed_size(fmt, rows, columns)
    expected, found = (Arena(size).alloc(size, "panels") for _ in range(2))
    decompress(Pool([0]), buffer, expected, fmt, rows, columns)
    source: Any = TorchBuffer(seen(buffer))
    target: Any = TorchBuffer(seen(found))
    expand(ExpansionMove(source, target, fmt, rows, columns))
    assert torch.equal(seen(found), seen(expected))


@pytest.mark.parametrize("width", [16, 40, 64, 80, 128, 200])
def test_groups_of_caches_have_the_bits_of_the_host(width: int) -> None:
    """Extreme values too: a scale that would pass the largest f16, a group of equal values, NaN."""
    rng = np.random.default_rng(width)
    rows = (rng.standard_normal((60, width)) * 10.0 ** rng.integers(-9, 6, (60, 1))).astype(np.float32)
    rows[0], rows[1], rows[2, 0], rows[3] = 0.0, 7.25, np.nan, np.where(np.arange(width) % 2, 65504, -65504)
    rows[4] = np.where(np.arange(width) % 3, 1e30, 65000)
    size = q4_row_size(width)
    buffer = Arena(size * len(rows)).alloc(size * len(rows), "rows")
    compress_rows(rows, buffer, len(rows), width)
    found = pack_groups(torch.from_numpy(rows))
    assert torch.equal(found, seen(buffer).view(len(rows), size))
    again = unpack_groups(found, width)
    step = np.ptp(np.nan_to_num(np.clip(rows, -65504, 65504)), axis=1, keepdims=True) / 15
    assert (np.abs(again.numpy() - np.clip(rows, -65504, 65504))[5:] <= 0.51 * step[5:] + 1e-6).all()


@pytest.mark.parametrize("width", [32, 96, 128])
def test_codes_of_caches_have_the_bits_of_the_host(width: int) -> None:
    """Halves away from zero, scales with no inverse, rows of zeros; NaN counts as zero, infinities as the largest."""
    rng = np.random.default_rng(width)
    rows = (rng.standard_normal((60, width)) * 10.0 ** rng.integers(-9, 4, (60, 1))).astype(np.float32)
    rows[0], rows[1], rows[2], rows[3, :5] = 0.0, 1e-39, np.arange(width) - 16, [127, 0.5, -0.5, 1.5, -2.5]
    rows[3, 5:] = 0
    assert np.array_equal(pack_codes(torch.from_numpy(rows)).numpy(), q8_rows(rows))
    assert np.array_equal(unpack_codes(torch.from_numpy(q8_rows(rows)), width).numpy(), q8_values(rows))
    beyond = torch.tensor([[np.nan, np.inf, -np.inf, *[1.0] * 29]])
    clipped = np.array([[0.0, 65504, -65504, *[1.0] * 29]], np.float32)
    assert np.array_equal(pack_codes(beyond).numpy(), q8_rows(clipped))


@pytest.mark.parametrize("fmt", ["bf16", "q8_0", "q4_k"])
def test_products_of_its_formats_are_probed(fmt: StoredFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks through a few matrices: many are for caches of a GPU, and no rate is asked for here."""
    monkeypatch.setattr(probe, "PRODUCT_BYTES", 1 << 16)
    assert 0 < probe.product_rate(torch.device("cpu"), fmt, 64, 256, 2) < 1e15
