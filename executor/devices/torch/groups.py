"""Rows of caches in 4-bit groups, bit for bit as csrc/kernels/cache/cache_rows.h has them.

Per group of 64 values of a row, of which the last may be shorter, a scale and a minimum (f16), then per 16 values 8
bytes, byte i holding the codes of values i (low four bits) and i + 8."""

from collections.abc import Iterator

import torch

GROUP = 64
TOGETHER = 16
"""Values whose codes are stored together."""
LARGEST = torch.finfo(torch.float16).max
CODE = 15


def pack_groups(rows: torch.Tensor) -> torch.Tensor:
    """uint8 (.., bytes) of f32 rows (.., width)."""
    parts = []
    for begin, end, count in _spans(rows.shape[-1]):
        parts.append(_packed(torch.unflatten(rows[..., begin:end], -1, (count, -1))).flatten(-2))
    return torch.cat(parts, -1)


def unpack_groups(packed: torch.Tensor, width: int) -> torch.Tensor:
    """f32 (.., width) of rows of `pack_groups`."""
    parts, at = [], 0
    for begin, end, count in _spans(width):
        size = count * (4 + -(-(end - begin) // count // TOGETHER) * TOGETHER // 2)
        groups = torch.unflatten(packed[..., at : at + size], -1, (count, -1))
        at += size
        factor, shift = (groups[..., side : side + 2].view(torch.float16).float() for side in (0, 2))
        codes = torch.unflatten(groups[..., 4:], -1, (-1, TOGETHER // 2))
        values = torch.cat((codes & CODE, codes >> 4), -1).flatten(-2) * factor + shift
        parts.append(values[..., : (end - begin) // count].flatten(-2))
    return torch.cat(parts, -1)


def _spans(width: int) -> Iterator[tuple[int, int, int]]:
    """(first value, end, groups) of the whole groups of a row, then of a shorter one."""
    whole = width // GROUP
    if whole:
        yield 0, whole * GROUP, whole
    if width % GROUP:
        yield whole * GROUP, width, 1


def _packed(groups: torch.Tensor) -> torch.Tensor:
    """uint8 (.., groups, bytes) of f32 (.., groups, values)."""
    inside = groups.nan_to_num(-LARGEST).clamp(-LARGEST, LARGEST)
    low = _floored(-(0.0 - inside).amax(-1, keepdim=True))
    minimum = low.view(torch.float16).float()
    bits = ((inside.amax(-1, keepdim=True) - minimum) / CODE).half().view(torch.int16)
    beyond = minimum + CODE * bits.view(torch.float16).float() > LARGEST
    scale = bits - beyond.short()
    step = scale.view(torch.float16).float()
    codes = torch.where(scale == 0, 0.0, torch.round((inside - minimum) / step).clamp(max=CODE))
    short = -codes.shape[-1] % TOGETHER
    padded = torch.cat((codes, codes[..., :1].expand(*codes.shape[:-1], short)), -1)
    both = torch.unflatten(padded.to(torch.uint8), -1, (-1, 2, TOGETHER // 2))
    stored = both[..., 0, :] | both[..., 1, :] << 4
    return torch.cat((scale.view(torch.uint8), low.view(torch.uint8), stored.flatten(-2)), -1)


def _floored(values: torch.Tensor) -> torch.Tensor:
    """The bits of the largest f16 numbers that are not above `values`, int16."""
    halves = values.half()
    bits = halves.view(torch.int16)
    below = torch.where(bits < 0, bits + 1, torch.where(bits == 0, -32767, bits - 1)).short()
    return torch.where(halves.float() <= values, bits, below)
