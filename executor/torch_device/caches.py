"""Keys and values of a block as tensors: heads in one buffer or several, and rows that are kept elsewhere too."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from helmsman.executor.torch_device.buffers import dtype_of, held_in
from helmsman.executor.torch_device.groups import pack_groups
from helmsman.schemas.formats import rows_size

if TYPE_CHECKING:
    from helmsman.executor._kernels import Kept, StageSpec

Pieces = tuple[tuple[int, int, torch.Tensor], ...]
"""(begin, end, tensor) of KV heads; tensors (batch, heads, capacity, head_dim), transposed keys (batch, heads,
head_dim, capacity); kept in 4-bit groups uint8 (batch, heads, capacity, bytes of a row)."""


@dataclass(frozen=True)
class HeadsCache:
    """The keys or the values of a block. `transposed`: lines of tokens, as divided attention reads keys."""

    pieces: Pieces
    kept: Pieces
    transposed: bool

    def write(self, rows: torch.Tensor, at: torch.Tensor) -> None:
        """New rows (batch, heads, tokens, head_dim) to the positions `at` (tokens,)."""
        for begin, end, held in self.pieces:
            new = rows[:, begin:end].to(held.dtype)
            if self.transposed:
                held.index_copy_(3, at, new.transpose(2, 3))
            else:
                held.index_copy_(2, at, new)
        for begin, end, held in self.kept:
            held.index_copy_(2, at, _as_kept(rows[:, begin:end], held.dtype))

    def read(self, heads: range, count: int) -> torch.Tensor:
        """(batch, heads, count, head_dim) of the first `count` positions; transposed, the last two swapped."""
        whole = next((piece for piece in self.pieces if piece[0] <= heads.start and heads.stop <= piece[1]), None)
        if whole is not None:
            found = whole[2][:, heads.start - whole[0] : heads.stop - whole[0]]
            return found[..., :count] if self.transposed else found[:, :, :count]
        return torch.cat([self._head(head, count) for head in heads], 1)

    def _head(self, head: int, count: int) -> torch.Tensor:
        begin, _, held = next(piece for piece in reversed(self.pieces) if piece[0] <= head < piece[1])
        found = held[:, head - begin : head - begin + 1]
        return found[..., :count] if self.transposed else found[:, :, :count]


def cache_of(spec: "StageSpec", content: object, kept: "list[Kept]", transposed: bool) -> HeadsCache | None:
    """What `Block.keys` or `.values` says; None when the block has none."""
    if content is None:
        return None
    listed = content if isinstance(content, list) else [(0, spec["kv_heads"], content)]
    dtype, batch = dtype_of(spec["kv_format"]), spec["batch"]
    line = (spec["head_dim"], spec["capacity"]) if transposed else (spec["capacity"], spec["head_dim"])
    pieces = tuple(
        (begin, end, held_in(buffer).view(dtype, batch, end - begin, *line)) for begin, end, buffer in listed
    )
    return HeadsCache(pieces, tuple(_kept(spec, each) for each in kept), transposed)


def _as_kept(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return pack_groups(rows) if dtype == torch.uint8 else rows.to(dtype)


def _kept(spec: "StageSpec", each: "Kept") -> tuple[int, int, torch.Tensor]:
    """Rows of some heads as a memory keeps them, seen as (batch, heads, capacity, values or bytes)."""
    begin, end = each["heads"]
    count, batch, capacity, width = end - begin, spec["batch"], spec["capacity"], spec["head_dim"]
    dtype = torch.uint8 if each["groups"] else dtype_of(spec["kv_format"])
    width = rows_size(1, width, "q4") if each["groups"] else width
    if each["by_token"]:
        rows = held_in(each["rows"]).view(dtype, batch, capacity, count, width).transpose(1, 2)
    else:
        rows = held_in(each["rows"]).view(dtype, batch, count, capacity, width)
    return begin, end, rows
