"""The expansion of what comes to a PyTorch device in 4-bit groups or turned to what its operations read."""

import torch

from helmsman.executor.devices.move_calls import ExpansionMove, Turn
from helmsman.executor.devices.parts import Buffer, of_kind
from helmsman.executor.devices.torch.buffers import TorchBuffer, dtype_of
from helmsman.executor.devices.torch.groups import unpack_groups
from helmsman.executor.devices.torch.quantised import expand_panels
from helmsman.lowering.buffers import EXPANDED_VALUES
from helmsman.lowering.operation import PANEL
from helmsman.schemas.formats import rows_size


def expand(expansion: ExpansionMove) -> None:
    """4-bit groups to panels of values."""
    panels = -(-expansion.rows // PANEL)
    packed = of_kind(expansion.source, TorchBuffer).bytes.view(panels, -1)
    target = of_kind(expansion.target, TorchBuffer).view(dtype_of(expansion.format), panels, expansion.columns, PANEL)
    expand_panels(packed, "q4", target.transpose(1, 2))


def turn(turn: Turn, past: int) -> None:
    """The first `past` tokens of some heads, as many at a time as expanded weights have values."""
    sequences, heads, width = turn.counts
    most = max(1, EXPANDED_VALUES // (sequences * heads * width))
    for first in range(0, past, most):
        count = min(most, past - first)
        rows = _stored(turn, first, count)
        _target(turn, first, count).copy_(rows.transpose(2, 3) if turn.transposed else rows)


def _stored(turn: Turn, first: int, count: int) -> torch.Tensor:
    """(sequences, heads, count, head_dim) of tokens from `first` on."""
    width, offset = turn.counts[2], turn.source_offset + first * turn.source_strides[2]
    if turn.stored == "q4":
        size = rows_size(1, width, "q4")
        return unpack_groups(_seen(turn.source, torch.uint8, turn, count, size, turn.source_strides, offset), width)
    return _seen(turn.source, dtype_of(turn.format), turn, count, width, turn.source_strides, offset)


def _target(turn: Turn, first: int, count: int) -> torch.Tensor:
    """Rows, or lines of tokens, from token `first` on."""
    dtype, strides = dtype_of(turn.format), turn.target_strides
    if not turn.transposed:
        offset = turn.target_offset + first * strides[2]
        return _seen(turn.target, dtype, turn, count, turn.counts[2], strides, offset)
    offset = turn.target_offset + first * dtype.itemsize
    return _seen(turn.target, dtype, turn, turn.counts[2], count, strides, offset)


def _seen(
    buffer: Buffer,
    dtype: torch.dtype,
    turn: Turn,
    lines: int,
    width: int,
    strides: tuple[int, int, int],
    offset: int,
) -> torch.Tensor:
    """(sequences, heads, lines, width) at byte `strides`."""
    shape = (*turn.counts[:2], lines, width)
    return of_kind(buffer, TorchBuffer).strided(dtype, shape, (*strides, dtype.itemsize), offset)
