"""Attention of a block on a PyTorch device: over its cache, over parts of it wherever they lie, or divided by heads."""

from collections.abc import Iterator, Sequence

import torch

from helmsman.executor.devices.operations import CacheUser, HeadShape
from helmsman.executor.devices.parts import KvSpan, of_kind
from helmsman.executor.devices.specs import StageSpec
from helmsman.executor.devices.torch.activations import Activations
from helmsman.executor.devices.torch.attention import (
    Seen,
    attend_at_once,
    attend_part,
    merge,
    scoring_of,
    seen_sinks,
)
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.caches import HeadsCache, kind_of
from helmsman.executor.devices.torch.positions import EVERYTHING, Positions, Reach
from helmsman.executor.devices.torch.steps import CacheStep
from helmsman.lowering.buffers import expanded_positions


class BlockAttention:
    """Reads caches in their own format; those in 8 bits are expanded a part at a time, and parts merge exactly."""

    def __init__(self, spec: StageSpec, activations: Activations, positions: Positions) -> None:
        self._spec, self._activations, self._positions = spec, activations, positions
        self._running: Seen | None = None

    def whole(self, step: CacheStep, tokens: int, past: int) -> None:
        """Over the cache of a block: at once, or what is kept in 8 bits a part after the other."""
        op, heads = step.spec, range(step.spec["kv_heads"])
        reach, scoring = reach_of(op), scoring_of(op)
        count = self._positions.seen(tokens, past, reach.ring)
        keys, values = _there(step.keys), _there(step.values)
        if keys.plain and step.sinks is None and scoring.softcap is None:
            self._at_once(step, keys.read(heads, 0, count), values.read(heads, 0, count), tokens, past)
            return
        q = self._activations.queries(op["inputs"][0], tokens, op)
        running = None if step.sinks is None else seen_sinks(q, step.sinks)
        for begin, end in self._parts(op, keys.plain, count):
            later = self._positions.later(step.group, tokens, past, begin, end, reach)
            part = attend_part(q, keys.read(heads, begin, end), values.read(heads, begin, end), later, scoring)
            running = _with(running, part)
        assert running is not None, "a token sees itself"
        self._activations.attended(op["output"], running[0], tokens, op)

    def _at_once(self, step: CacheStep, keys: torch.Tensor, values: torch.Tensor, tokens: int, past: int) -> None:
        """Over keys and values (batch, kv_heads, count, head_dim), by PyTorch's own attention."""
        reach = reach_of(step.spec)
        alone = tokens > 1 and past == 0 and keys.dtype != torch.float32 and reach == EVERYTHING
        mask = None if alone else self._positions.mask(step.group, tokens, past, keys.shape[2], keys.dtype, reach)
        names = step.spec["inputs"][0], step.spec["output"]
        q, target = (self._activations.heads(name, tokens, step.spec["head_dim"]) for name in names)
        attend_at_once(q, keys, values, mask, target, scoring_of(step.spec).scale)

    def _parts(self, heads: HeadShape, plain: bool, count: int) -> Iterator[tuple[int, int]]:
        values = self._spec["batch"] * heads["kv_heads"] * heads["head_dim"]
        step = count if plain else expanded_positions(values)
        yield from ((begin, min(begin + step, count)) for begin in range(0, count, step))

    def spans(self, step: CacheStep, spans: Sequence[KvSpan], first: bool, last: bool, tokens: int, past: int) -> None:
        """Part after part: over `spans` of a cache.

        `first` forgets what earlier parts have seen, `last` leaves the output where attention leaves it."""
        self._positions.begin()
        self._positions.place(past)
        op = step.spec
        q, running = self._activations.queries(op["inputs"][0], tokens, op), None if first else self._running
        if first and step.sinks is not None:
            running = seen_sinks(q, step.sinks)
        for part in (part for span in spans if span[-1] > 0 for part in self._pieces(op, span)):
            running = _with(running, attend_part(q, *self._span(step, part, tokens, past), scoring_of(op)))
        self._running = running
        if last:
            out = torch.zeros_like(q) if running is None else running[0]
            self._activations.attended(op["output"], out, tokens, op)

    def _pieces(self, heads: HeadShape, span: KvSpan) -> Iterator[KvSpan]:
        keys, key_offset, values, value_offset, sequence, head, position, count = span
        kind = kind_of(self._spec, heads["head_dim"])
        row = kind.length * kind.dtype.itemsize
        for begin, end in self._parts(heads, kind.plain, count):
            offsets = key_offset + begin * row, value_offset + begin * row
            yield keys, offsets[0], values, offsets[1], sequence, head, position + begin, end - begin

    def _span(
        self, step: CacheStep, span: KvSpan, tokens: int, past: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Keys and values (batch, kv_heads, count, head_dim), and which of them a token may not look at."""
        keys, key_offset, values, value_offset, sequence, head, position, count = span
        kind = kind_of(self._spec, step.spec["head_dim"])
        dtype, length = kind.dtype, kind.length
        shape = (self._spec["batch"], step.spec["kv_heads"], count, length)
        strides = (sequence, head, length * dtype.itemsize, dtype.itemsize)
        sides = ((keys, key_offset), (values, value_offset))
        one, other = (kind.values(of_kind(side, TorchBuffer).strided(dtype, shape, strides, at)) for side, at in sides)
        seen = position + count <= past + 1
        return one, other, None if seen else self._positions.later(step.group, tokens, past, position, position + count)

    def scores(self, step: CacheStep, tokens: int, past: int) -> None:
        """Products of queries and keys of some heads."""
        op, heads, count = step.spec, step.computes, past + tokens
        scores = self._activations.scores(op["output"], tokens, op)
        q = self._activations.heads(op["inputs"][0], tokens, op["head_dim"]).view(*scores.shape[:4], -1)
        keys = _there(step.keys).read(heads, 0, count)
        products = torch.einsum("bthgd,bhdn->bthgn", q[:, :, heads.start : heads.stop].to(keys.dtype), keys).float()
        scores[:, :, heads.start : heads.stop, :, :count] = products

    def softmax(self, step: CacheStep, tokens: int, past: int) -> None:
        """Weights of the positions that each token may look at."""
        count = past + tokens
        lines = self._activations.scores(step.spec["output"], tokens, step.spec)[..., :count]
        later = self._positions.beyond(tokens, past, 0, count).view(1, tokens, 1, 1, count)
        scaled = lines * (step.spec.get("scale") or step.spec["head_dim"] ** -0.5)
        lines.copy_(torch.softmax(scaled.masked_fill(later, -torch.inf), -1))

    def weighted(self, step: CacheStep, tokens: int, past: int) -> None:
        """Sums of the values of some heads."""
        op, heads, count = step.spec, step.computes, past + tokens
        scores = self._activations.scores(op["inputs"][0], tokens, op)
        values = _there(step.values).read(heads, 0, count)
        weights = scores[:, :, heads.start : heads.stop, :, :count]
        sums = torch.einsum("bthgn,bhnd->bthgd", weights.to(values.dtype), values).float()
        out = self._activations.heads(op["output"], tokens, op["head_dim"]).view(*scores.shape[:4], -1)
        out[:, :, heads.start : heads.stop] = sums


def reach_of(op: CacheUser) -> Reach:
    """Return the positions that an operation attends to."""
    return Reach(op.get("window"), op.get("rows"))


def _there(cache: HeadsCache | None) -> HeadsCache:
    assert cache is not None, "a block that attends has caches"
    return cache


def _with(seen: Seen | None, part: Seen) -> Seen:
    return part if seen is None else merge(seen, part)
