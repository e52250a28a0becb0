"""Rows of caches in 8 bits: a code for every value, then a scale (f16) for every 32 of them, which the last code of a
row ends; bit for bit as csrc/kernels/cache/kv_row_impl.h has them."""

import torch

RUN = 32
LARGEST = torch.finfo(torch.float16).max
NORMAL = torch.finfo(torch.float32).tiny
"""The smallest scale that has an inverse."""


def pack_codes(rows: torch.Tensor) -> torch.Tensor:
    """uint8 (.., bytes) of f32 rows (.., width), as GGUF's Q8_0 rounds them: halves away from zero."""
    runs = torch.unflatten(rows.nan_to_num(0.0).clamp(-LARGEST, LARGEST), -1, (-1, RUN))
    scale = runs.abs().amax(-1, keepdim=True) / 127
    inverse = torch.where(scale < NORMAL, 0.0, 1 / scale)
    halves = (runs * inverse * 2).to(torch.int32)
    codes = torch.div(halves + halves.sign(), 2, rounding_mode="trunc").to(torch.int8)
    return torch.cat((codes.flatten(-2).view(torch.uint8), scale.half().flatten(-2).view(torch.uint8)), -1)


def unpack_codes(packed: torch.Tensor, width: int) -> torch.Tensor:
    """f32 (.., width) of rows of `pack_codes`."""
    runs = torch.unflatten(packed[..., :width].view(torch.int8), -1, (-1, RUN))
    return (runs * packed[..., width:].view(torch.float16).float().unsqueeze(-1)).flatten(-2)
