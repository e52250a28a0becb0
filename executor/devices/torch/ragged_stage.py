"""Operations of a PyTorch device for rows of several sequences, whose keys and values are in blocks of one cache."""

from collections.abc import Iterator

import torch

from helmsman.executor.devices.specs import Block as BlockSpec
from helmsman.executor.devices.specs import RaggedSpec, StageSpec
from helmsman.executor.devices.torch.attention import Seen, attend_part, merge
from helmsman.executor.devices.torch.blocks import StageBlock
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.caches import HeadsCache, cache_of
from helmsman.executor.devices.torch.positions import Positions
from helmsman.executor.devices.torch.ragged_rows import Cached, Group, RaggedRows
from helmsman.executor.devices.torch.stage import TorchStage
from helmsman.lowering.buffers import gathered_positions

Sides = tuple[HeadsCache, HeadsCache]
"""Keys and values."""


class RowPositions(Positions):
    """Every row of a pass has a position of its own."""

    rows: torch.Tensor

    def of(self, tokens: int, past: int) -> torch.Tensor:
        """int64 (tokens,)."""
        return self.rows


class RaggedStage(TorchStage):
    """Rows of a pass go through in one piece; those of no sequence are rotated, but neither cached nor attended to."""

    def __init__(self, spec: RaggedSpec, workspace: TorchBuffer, first_layer: int) -> None:
        group = spec["heads"] // spec["kv_heads"]
        self._at = RowPositions(spec["capacity"], group, workspace.bytes.device)
        super().__init__(spec, workspace, first_layer, self._at)
        self._over_caches["attention"] = self._attend
        through: RaggedSpec = {**spec, "capacity": spec["passing"]}
        passing = [_passing(through, block) for block in spec["blocks"]]
        self._passing = dict(zip(map(id, self._blocks), passing, strict=True))
        self._capacity = spec["capacity"]
        self._names = {name: index for index, name in enumerate(self.ops)}

    def rows_of(self, name: str, count: int) -> torch.Tensor:
        """f32 (count, width) of hidden, q, k, v or attended."""
        return self._activations.rows(name, count)

    @property
    def capacity(self) -> int:
        """Rows of its own caches."""
        return self._capacity

    def run(self, rows: RaggedRows, first: str, last: str) -> None:
        """Operations from `first` to `last`; only the embedding looks at what tokens rows are."""
        if rows.count == 0:
            return
        self._rows, self._at.rows = rows, rows.positions
        if first == "embedding":
            self._ids[: rows.count].copy_(rows.ids)
        self.compute(self._names[first], self._names[last] + 1, rows.count, 0, ends=True)

    def finish(self, hidden: torch.Tensor) -> list[int]:
        """The likeliest tokens after hidden states (n, hidden), whose logits are kept; by a stage with a head."""
        assert self._final_norm is not None and self._head is not None, "a stage with a head"
        logits = self._activations.logits[: len(hidden)]
        self._head.multiply(self._final_norm.of(hidden, *self._norm_kind), logits)
        result: list[int] = logits.argmax(-1).tolist()
        return result

    def _append(self, block: StageBlock, tokens: int, past: int) -> None:
        self._place_heads(block, tokens, self._at.rows)
        self._keep((_there(block.keys), _there(block.values)), self._rows.own)
        passing = self._passing[id(block)]
        if passing is not None:
            self._keep(passing, self._rows.passing)

    def _keep(self, caches: Sides, kept: Cached) -> None:
        for cache, name in zip(caches, ("k", "v"), strict=True):
            rows = self._activations.heads(name, self._rows.count)[:, kept.rows]
            cache.write(rows.transpose(1, 2), kept.at)

    def _attend(self, block: StageBlock, tokens: int, past: int) -> None:
        for group in self._rows.groups:
            caches = self._passing[id(block)] if group.passing else (_there(block.keys), _there(block.values))
            assert caches is not None, "prompts pass through where there is room for it"
            self._attend_group(group, caches)

    def _attend_group(self, group: Group, caches: Sides) -> None:
        """A part of the positions after the other, as many as are gathered at a time."""
        q, running = self._queries(group), None
        for begin, end in self._parts(group):
            places = group.places[:, begin:end]
            later = torch.arange(begin, end, device=places.device) > self._at.rows[group.rows].unsqueeze(-1)
            hidden = later.repeat(1, self._group, 1).unsqueeze(1)
            keys, values = (cache.gather(places) for cache in caches)
            part = attend_part(q, keys, values, hidden)
            running = part if running is None else merge(running, part)
        assert running is not None, "a token sees itself"
        self._attended(group, running)

    def _parts(self, group: Group) -> Iterator[tuple[int, int]]:
        (sequences, tokens), count = group.rows.shape, group.places.shape[1]
        step = gathered_positions(
            sequences, tokens * self._spec["heads"], self._spec["kv_heads"] * self._spec["head_dim"]
        )
        yield from ((begin, min(begin + step, count)) for begin in range(0, count, step))

    @property
    def _group(self) -> int:
        """Query heads of a KV head."""
        return self._spec["heads"] // self._spec["kv_heads"]

    def _queries(self, group: Group) -> torch.Tensor:
        """(n, kv_heads, group * tokens, head_dim)."""
        (sequences, tokens), heads = group.rows.shape, self._spec["kv_heads"]
        q = self._activations.heads("q", self._rows.count)[0][group.rows]
        parted = q.view(sequences, tokens, heads, self._group, -1).permute(0, 2, 3, 1, 4)
        return parted.reshape(sequences, heads, self._group * tokens, -1)

    def _attended(self, group: Group, seen: Seen) -> None:
        """From (n, kv_heads, group * tokens, head_dim) to rows."""
        (sequences, tokens), heads = group.rows.shape, self._spec["kv_heads"]
        out = seen[0].view(sequences, heads, self._group, tokens, -1).permute(0, 3, 1, 2, 4)
        rows = self._activations.rows("attended", self._rows.count)
        rows.index_copy_(0, group.rows.flatten(), out.reshape(sequences * tokens, -1))


def _there(cache: HeadsCache | None) -> HeadsCache:
    assert cache is not None, "a block that attends has caches"
    return cache


def _passing(spec: StageSpec, block: BlockSpec) -> Sides | None:
    """Return the caches through which keys and values of a layer only pass, if there is room for them."""
    sides = (block.get("passing_keys"), block.get("passing_values"))
    caches = [cache_of(spec, side, [], transposed=False) for side in sides]
    return None if caches[0] is None else (_there(caches[0]), _there(caches[1]))
