"""Keys and values of a block as tensors: heads in one buffer or several, and rows that are kept elsewhere too."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from helmsman.executor.devices.operations import CacheUser
from helmsman.executor.devices.parts import Buffer, of_kind
from helmsman.executor.devices.specs import StageSpec
from helmsman.executor.devices.tensors import CacheBuffers, StoredHeads
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.row_formats import RowFormat
from helmsman.schemas.errors import UsageError


@dataclass(frozen=True)
class CacheRows:
    """Rows of KV heads [begin, end): (batch, heads, capacity, length of a row); transposed keys (batch, heads,
    head_dim, capacity)."""

    begin: int
    end: int
    kind: RowFormat
    rows: torch.Tensor

    def of(self, heads: range) -> torch.Tensor:
        """Rows of some of the heads."""
        return self.rows[:, heads.start - self.begin : heads.stop - self.begin]


@dataclass(frozen=True)
class HeadsCache:
    """The keys or the values of a block. `transposed`: lines of tokens, as divided attention reads keys."""

    pieces: tuple[CacheRows, ...]
    kept: tuple[CacheRows, ...]
    transposed: bool

    def write(self, rows: torch.Tensor, at: torch.Tensor | slice) -> None:
        """New rows (batch, heads, tokens, head_dim) to the positions `at`, int64 (tokens,) or all of a range: a copy to
        a range takes a host a tenth of the time."""
        for held in self.pieces:
            new = held.kind.keep(rows[:, held.begin : held.end])
            if self.transposed:
                _copy(held.rows, 3, at, new.transpose(2, 3))
            else:
                _copy(held.rows, 2, at, new)
        for held in self.kept:
            _copy(held.rows, 2, at, held.kind.keep(rows[:, held.begin : held.end]))

    @property
    def plain(self) -> bool:
        """Whether reading takes no room: nothing is expanded."""
        return all(held.kind.plain for held in self.pieces)

    def read(self, heads: range, begin: int, end: int) -> torch.Tensor:
        """(batch, heads, count, head_dim) of positions [begin, end); transposed, the last two swapped."""
        parts: list[torch.Tensor] = []
        for number, group in groupby(heads, self._holding):
            same = list(group)
            parts.append(self._values(self.pieces[number], range(same[0], same[-1] + 1), begin, end))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def gather(self, places: torch.Tensor) -> torch.Tensor:
        """(n, heads, count, head_dim) of rows `places` (n, count) of a cache that all sequences share."""
        values = [held.kind.values(held.rows[0][:, places].transpose(0, 1)) for held in self.pieces]
        return values[0] if len(values) == 1 else torch.cat(values, 1)

    def _holding(self, head: int) -> int:
        """The piece that counts for a head: of several the last, which holds what lives here."""
        return next(n for n in reversed(range(len(self.pieces))) if self.pieces[n].begin <= head < self.pieces[n].end)

    def _values(self, held: CacheRows, heads: range, begin: int, end: int) -> torch.Tensor:
        if self.transposed:
            return held.of(heads)[..., begin:end]
        return held.kind.values(held.of(heads)[:, :, begin:end])


def _copy(target: torch.Tensor, dimension: int, at: torch.Tensor | slice, rows: torch.Tensor) -> None:
    """To the positions `at` of a dimension of `target`."""
    if isinstance(at, slice):
        target.narrow(dimension, at.start, at.stop - at.start).copy_(rows)
    else:
        target.index_copy_(dimension, at, rows)


def cache_of(
    spec: StageSpec, heads: CacheUser, content: CacheBuffers, kept: list[StoredHeads], transposed: bool
) -> HeadsCache | None:
    """Return the cache that `CacheUser.keys` or `.values` describes; None when the block has none.

    Raises UsageError for lines of tokens that are not values."""
    if content is None:
        return None
    kind = kind_of(spec, heads["head_dim"])
    if transposed and not kind.plain:
        remedy = "keep caches in one of them, or do not divide attention"
        raise UsageError("divided attention reads f32, f16 and bf16", field="kv_format", value=kind.fmt, remedy=remedy)
    listed = content if isinstance(content, list) else [(0, heads["kv_heads"], content)]
    rows = heads.get("rows") or spec["capacity"]
    line = (heads["head_dim"], rows) if transposed else (rows, kind.length)
    pieces = tuple(_held(kind, spec["batch"], line, *entry) for entry in listed)
    return HeadsCache(pieces, tuple(_kept(spec, heads["head_dim"], entry) for entry in kept), transposed)


def kind_of(spec: StageSpec, head_dim: int) -> RowFormat:
    """How attention's own caches keep rows."""
    return RowFormat(spec["kv_format"], head_dim)


def _held(kind: RowFormat, batch: int, line: Sequence[int], begin: int, end: int, buffer: Buffer) -> CacheRows:
    return CacheRows(begin, end, kind, of_kind(buffer, TorchBuffer).view(kind.dtype, batch, end - begin, *line))


def _kept(spec: StageSpec, head_dim: int, entry: StoredHeads) -> CacheRows:
    """Rows of some heads as a memory keeps them, seen as (batch, heads, capacity, length)."""
    begin, end = entry["heads"]
    kind = RowFormat("q4", head_dim) if entry["groups"] else kind_of(spec, head_dim)
    count, batch, capacity, buffer = end - begin, spec["batch"], spec["capacity"], of_kind(entry["rows"], TorchBuffer)
    if entry["by_token"]:
        rows = buffer.view(kind.dtype, batch, capacity, count, kind.length).transpose(1, 2)
    else:
        rows = buffer.view(kind.dtype, batch, count, capacity, kind.length)
    return CacheRows(begin, end, kind, rows)
