"""Operations of a PyTorch device for rows of several sequences, whose keys and values are in blocks of one cache."""

from collections.abc import Iterator

import torch

from helmsman.executor.devices.operations import CacheUser
from helmsman.executor.devices.specs import RaggedSpec, StageSpec
from helmsman.executor.devices.torch.attention import Seen, attend_part, merge, scoring_of, seen_sinks
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.caches import HeadsCache, cache_of
from helmsman.executor.devices.torch.latent import place_latent
from helmsman.executor.devices.torch.positions import Positions
from helmsman.executor.devices.torch.ragged_rows import Cached, Group, RaggedRows
from helmsman.executor.devices.torch.recurrent import SequenceRun
from helmsman.executor.devices.torch.row_steps import values_of
from helmsman.executor.devices.torch.stage import TorchStage
from helmsman.executor.devices.torch.steps import AppendStep, CacheStep, LatentAppendStep, LinearStep, NormStep
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
        self._at = RowPositions(spec["capacity"], workspace.bytes.device)
        super().__init__(spec, workspace, first_layer, self._at)
        through: RaggedSpec = {**spec, "capacity": spec["passing"]}
        over = [step for step in self._steps if isinstance(step, AppendStep | CacheStep)]
        self._passing = {(step.spec["block"], step.spec["name"]): _passing(through, step.spec) for step in over}
        self._capacity = spec["capacity"]
        self._index = {name: index for index, name in enumerate(self.ops)}

    def rows_of(self, name: str, count: int) -> torch.Tensor:
        """f32 (count, width) of hidden, q, k, v or attended."""
        return self._activations.rows(name, count)

    @property
    def capacity(self) -> int:
        """Rows of its own caches."""
        return self._capacity

    def after(self, name: str) -> str:
        """Return the operation that follows one."""
        return self.ops[self._index[name] + 1]

    def before(self, name: str) -> str:
        """Return the operation that comes before one."""
        return self.ops[self._index[name] - 1]

    def between(self, name: str, first: str, last: str) -> bool:
        """Return whether an operation is `first`, `last` or one between them."""
        return self._index[first] <= self._index[name] <= self._index[last]

    def attends(self, layer: int) -> bool:
        """Return whether a block reads a cache."""
        return f"{layer}.attention" in self._index

    def turns(self, layer: int) -> str:
        """Return the operation of a block that attends which norms and rotates, and appends where it has a cache of its
        own."""
        own = f"{layer}.append"
        return own if own in self._index else f"{layer}.rotate"

    def begin(self, rows: RaggedRows) -> None:
        """Run what comes before the blocks."""
        blocks = next(number for number, step in enumerate(self._steps) if step.spec["block"] is not None)
        self.run(rows, self.ops[0], self.ops[blocks - 1])

    def last_of(self, layer: int) -> str:
        """Return the last operation of a block."""
        return next(name for name in reversed(self.ops) if name.startswith(f"{layer}."))

    def run(self, rows: RaggedRows, first: str, last: str) -> None:
        """Operations from `first` to `last`; only lookups look at what tokens rows are."""
        if rows.count == 0:
            return
        self._rows, self._at.rows = rows, rows.positions
        if self.embeds(self._index[first]):
            self._ids[: rows.count].copy_(rows.ids)
            torch.arange(rows.count, out=self._numbers[: rows.count])
        self.compute(self._index[first], self._index[last] + 1, rows.count, 0, ends=True)

    def finish(self, hidden: torch.Tensor) -> list[int]:
        """The likeliest tokens after hidden states (n, hidden), whose logits are kept; by a stage with a head."""
        norm, head = self._steps[-2:]
        assert isinstance(norm, NormStep) and norm.weights is not None, "a stage with a head"
        assert isinstance(head, LinearStep) and head.matrix is not None, "a stage with a head"
        logits = self._activations.logits[: len(hidden)]
        head.matrix.multiply(norm.weights.of(hidden, norm.spec["norm"], norm.spec["eps"]), logits)
        head.bound(logits)
        result: list[int] = logits.argmax(-1).tolist()
        return result

    def _append(self, step: AppendStep, tokens: int, past: int) -> None:
        appends = len(step.spec["inputs"]) > 1
        values = values_of(step, self._activations, tokens) if appends else None
        self._place_heads(step, tokens, self._at.rows)
        if values is None:
            return
        keys = self._activations.heads(step.spec["inputs"][1], tokens, step.spec["head_dim"])
        self._keep((keys, values), (_there(step.keys), _there(step.values)), self._rows.own)
        passing = self._passing[step.spec["block"], step.spec["name"]]
        if passing is not None:
            self._keep((keys, values), passing, self._rows.passing)

    def _append_latent(self, step: LatentAppendStep, tokens: int, past: int) -> None:
        rows = place_latent(step, self._activations, self._rows.count, self._at.rows)
        _there(step.rows).write(rows[:, :, self._rows.own.rows], self._rows.own.at)

    def _keep(self, made: tuple[torch.Tensor, torch.Tensor], caches: Sides, kept: Cached) -> None:
        """Write rows of keys and values, (1, count, kv_heads, head_dim) each."""
        for cache, rows in zip(caches, made, strict=True):
            cache.write(rows[:, kept.rows].transpose(1, 2), kept.at)

    def _runs(self, tokens: int, past: int) -> list[SequenceRun]:
        return list(self._rows.runs)

    def _attend(self, step: CacheStep, tokens: int, past: int) -> None:
        for group in self._rows.groups:
            passing = self._passing[step.spec["block"], step.spec["name"]]
            caches = passing if group.passing else (_there(step.keys), _there(step.values))
            assert caches is not None, "prompts pass through where there is room for it"
            self._attend_group(step, group, caches)

    def _attend_group(self, step: CacheStep, group: Group, caches: Sides) -> None:
        """A part of the positions after the other, as many as are gathered at a time."""
        q, window = self._queries(step, group), step.spec.get("window")
        running = None if step.sinks is None else seen_sinks(q, step.sinks)
        for begin, end in self._parts(step, group):
            places = group.places[:, begin:end]
            held, at = torch.arange(begin, end, device=places.device), self._at.rows[group.rows].unsqueeze(-1)
            later = held > at if window is None else (held > at) | (held <= at - window)
            hidden = later.repeat(1, step.group, 1).unsqueeze(1)
            keys, values = (cache.gather(places) for cache in caches)
            part = attend_part(q, keys, values, hidden, scoring_of(step.spec))
            running = part if running is None else merge(running, part)
        assert running is not None, "a token sees itself"
        self._attended(step, group, running)

    def _parts(self, step: CacheStep, group: Group) -> Iterator[tuple[int, int]]:
        (sequences, tokens), count = group.rows.shape, group.places.shape[1]
        op = step.spec
        most = gathered_positions(sequences, tokens * op["heads"], op["kv_heads"] * op["head_dim"])
        yield from ((begin, min(begin + most, count)) for begin in range(0, count, most))

    def _queries(self, step: CacheStep, group: Group) -> torch.Tensor:
        """(n, kv_heads, group * tokens, head_dim)."""
        (sequences, tokens), heads = group.rows.shape, step.spec["kv_heads"]
        name, width = step.spec["inputs"][0], step.spec["head_dim"]
        q = self._activations.heads(name, self._rows.count, width)[0][group.rows]
        parted = q.view(sequences, tokens, heads, step.group, -1).permute(0, 2, 3, 1, 4)
        return parted.reshape(sequences, heads, step.group * tokens, -1)

    def _attended(self, step: CacheStep, group: Group, seen: Seen) -> None:
        """From (n, kv_heads, group * tokens, head_dim) to rows."""
        (sequences, tokens), heads = group.rows.shape, step.spec["kv_heads"]
        out = seen[0].view(sequences, heads, step.group, tokens, -1).permute(0, 3, 1, 2, 4)
        rows = self._activations.rows(step.spec["output"], self._rows.count)
        rows.index_copy_(0, group.rows.flatten(), out.reshape(sequences * tokens, -1))


def _there(cache: HeadsCache | None) -> HeadsCache:
    assert cache is not None, "a block that attends has caches"
    return cache


def _passing(spec: StageSpec, op: CacheUser) -> Sides | None:
    """Return the caches through which keys and values of a layer only pass, if there is room for them."""
    sides = (op.get("passing_keys"), op.get("passing_values"))
    caches = [cache_of(spec, op, side, [], transposed=False) for side in sides]
    return None if caches[0] is None else (_there(caches[0]), _there(caches[1]))
