"""Parts of PyTorch stages by themselves: rotations, products, and the times of operations."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from together import together

from helmsman.executor.devices.torch import marks
from helmsman.executor.devices.torch.attention import attend_at_once
from helmsman.executor.devices.torch.buffers import TorchBuffer, dtype_of
from helmsman.executor.devices.torch.marks import Mark
from helmsman.executor.devices.torch.operation_times import PASSES, OperationTimes
from helmsman.executor.devices.torch.positions import Positions
from helmsman.executor.devices.torch.rotation import angles_at, rotate
from helmsman.executor.devices.torch.weights import TorchLinear, weight_of
from helmsman.schemas.formats import Format

CPU = torch.device("cpu")


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("in_place", [False, True])
def test_heads_are_turned_by_the_angles_of_their_positions(width: int, in_place: bool) -> None:
    """Against complex numbers: dimensions i and i + width / 2 are the parts of one."""
    made = torch.Generator().manual_seed(width)
    heads, at = torch.randn(2, 3, 5, 16, generator=made), torch.tensor([4, 0, 7])
    turns = torch.outer(torch.arange(9.0), torch.rand(width // 2, generator=made))
    half = width // 2
    numbers = torch.complex(heads[..., :half], heads[..., half:width]) * torch.polar(
        torch.ones(3, 1, half), turns[at].unsqueeze(1)
    )
    expected = torch.cat((numbers.real, numbers.imag, heads[..., width:]), -1)
    target = heads if in_place else torch.empty_like(heads)
    rotate(heads, angles_at(turns.cos(), turns.sin(), at), target)
    assert torch.allclose(target, expected, atol=1e-6)


@together("fmt", ["f32", "f16", "bf16"])
@together("add", [False, True])
@together("panels", [False, True])
def test_products_are_written_or_added(fmt: Format, add: bool, panels: bool) -> None:
    """Of whole rows and of panels; the target may be columns of something wider."""
    kind = dtype_of(fmt)
    rows, columns = 21, 32
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1)).to(kind)
    packed = torch.zeros(32, columns, dtype=kind)
    packed[:rows] = matrix
    held = packed.view(2, 16, columns).transpose(1, 2).contiguous() if panels else matrix.contiguous()
    buffer = TorchBuffer(held.reshape(-1).view(torch.uint8))
    weight = weight_of(buffer, fmt, rows, columns, torch.empty(0), panels)
    x = torch.randn(3, columns, generator=torch.Generator().manual_seed(2))
    wide = torch.ones(3, rows + 4)
    TorchLinear(weight, rows, 0, torch.arange(rows).float()).multiply(x, wide[:, 2:-2], add)
    expected = x.to(kind).double() @ matrix.double().t() + torch.arange(rows) + add
    error = {"f32": 1e-5, "f16": 5e-3, "bf16": 4e-2}[fmt]
    assert (wide[:, 2:-2] - expected).abs().max() < error * expected.abs().max()
    assert torch.equal(wide[:, [0, 1, -2, -1]], torch.ones(3, 4))


def test_a_range_is_marked_in_two_passes_of_which_the_second_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own, on which seconds pass as the test says."""
    now = [0.0]
    monkeypatch.setattr(marks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    times, key = OperationTimes(), (1, 0, 3, 1, True, 0)
    assert not times.of(key, 3).any()
    for spent in (8.0, 0.5):
        assert not times.known(key)
        made = [Mark(CPU)]
        for part in (1, 2):
            now[0] += part * spent
            made.append(Mark(CPU))
        times.keep(key, made)
    assert times.known(key) and PASSES == 2
    assert times.of(key, 3).tolist() == [0.5, 1.0, 0.0]
    assert times.of((*key[:-1], 7), 3).tolist() == [0.5, 1.0, 0.0], "after another past: as it was"
    assert not times.of((2, *key[1:]), 3).any()


def test_masks_and_positions_are_made_once_for_a_range() -> None:
    positions = Positions(300, CPU)
    mask = positions.mask(2, 3, 5, 8, torch.float16)
    expected = np.array([[0.0 if key <= 5 + token else -np.inf for key in range(8)] for token in [*range(3)] * 2])
    assert np.array_equal(mask.numpy(), expected.astype(np.float16))
    assert positions.mask(2, 3, 5, 8, torch.float16) is mask and positions.of(3, 5) is positions.of(3, 5)
    positions.begin()
    assert positions.mask(2, 3, 5, 8, torch.float16) is not mask


@together("group", [1, 2, 4])
@together(("tokens", "past"), [(1, 0), (1, 9), (5, 0), (5, 9)])
def test_attention_at_once_is_that_of_every_query_head(group: int, tokens: int, past: int) -> None:
    """Against sums written out; without a mask tokens see those before them."""
    made, heads, count = torch.Generator().manual_seed(group), 3, past + tokens
    q = torch.randn(2, tokens, heads * group, 8, generator=made)
    keys, values = (torch.randn(2, heads, count, 8, generator=made) for _ in range(2))
    positions = Positions(64, CPU)
    positions.place(past)
    later = torch.arange(count) > past + torch.arange(tokens).unsqueeze(1)
    scores = torch.einsum("bthd,bhnd->bhtn", q, keys.repeat_interleave(group, 1)) * 8**-0.5
    weights = torch.softmax(scores.masked_fill(later, -torch.inf), -1)
    expected = torch.einsum("bhtn,bhnd->bthd", weights, values.repeat_interleave(group, 1))
    masks = [positions.mask(group, tokens, past, count, torch.float32), *([None] if past == 0 and tokens > 1 else [])]
    for mask in masks:
        target = torch.full_like(q, torch.nan)
        attend_at_once(q, keys, values, mask, target)
        assert torch.allclose(target, expected, atol=1e-5)
