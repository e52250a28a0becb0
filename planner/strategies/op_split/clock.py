"""When the operations of a layer end, lane by lane, for every split at once: lowering's order over arrays of ranges.

Lanes are queues in the order in which lowering makes tasks, so that ends are maxima and sums: one recurrence over the
operations, whose every step is an array with an entry per range [i, j). No loop over ranges: O(n^2) of numpy for each
operation."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from helmsman.planner.strategies.op_split.dataflow import Dataflow, DataflowStep, Wire
from helmsman.planner.strategies.op_split.pipeline import Indices, Seconds

Side = Literal["host", "accelerator"]
Lane = Literal["host", "accelerator", "into", "back", "link", "link back", "unpack", "storage"]
Mask = NDArray[np.bool_]

_OTHER: dict[Side, Side] = {"host": "accelerator", "accelerator": "host"}


@dataclass(frozen=True, slots=True, eq=False)
class SidePart:
    """The part of an operation that one side does: `share` of it, 0 where it does nothing, `there` where it does."""

    side: Side
    share: Seconds
    there: Mask


@dataclass(frozen=True, slots=True, eq=False)
class StreamedSeconds:
    """The data that an operation's part on the accelerator waits for, seconds per range: weights (once) and caches (per
    batch), over the link and expanded; weights from storage, before they come over the link."""

    storage: Seconds
    weights: Seconds
    weights_work: Seconds
    caches: Seconds
    caches_work: Seconds


@dataclass(eq=False)
class _Value:
    """An activation: its parts and when they were made; when it is on each side, where it has come there.

    `kept`: when new keys and values are in the cache on the host."""

    size: int
    made: list[tuple[SidePart, Seconds]]
    at: dict[Side, Seconds]
    here: dict[Side, Mask]
    kept: Seconds | None = None


@dataclass(eq=False)
class LayerEstimate:
    """The state of all lanes for the ranges [start, stop); `ahead`: by so many layers streams come before their use,
    None: each follows the operation before; `end`: when the last operation of a layer ended.

    `crossed`: bytes of activations that have come to each side, `waited`: seconds that took on those lanes. `layer`:
    the one whose operations are next; by layer `used`: when the last operation that something was streamed for ended,
    by layer and batch `worked`: when the accelerator was done with it."""

    flow: Dataflow
    start: Indices
    stop: Indices
    ahead: int | None = None
    free: dict[Lane, Seconds] = field(default_factory=dict)
    values: dict[tuple[int, str], _Value] = field(default_factory=dict)
    crossed: dict[Side, Seconds] = field(default_factory=dict)
    waited: dict[Side, Seconds] = field(default_factory=dict)
    layer: int = 0
    used: dict[int, Seconds] = field(default_factory=dict)
    worked: dict[tuple[int, int], Seconds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.none = np.zeros(len(self.start))
        self.last, self.end = self.none, self.none
        self.parts = {step.name: parts_of(step, self.start, self.stop) for step in self.flow.steps}
        self.crossed = {"host": self.none, "accelerator": self.none}
        self.waited = {"host": self.none, "accelerator": self.none}

    @property
    def unsettled(self) -> Mask:
        """Where the next layer does not begin as this one did: a lane is still at work when the last operation ends, or
        its parts end one after the other."""
        parts = [part.there for part in self.parts[self.flow.steps[-1].name]]
        busy = np.maximum.reduce([self.none, *self.free.values()]) > self.end
        return np.asarray(busy | (np.sum(parts, axis=0) > 1))

    def step(self, step: DataflowStep, batch: int, stream: StreamedSeconds | None) -> None:
        """One operation of one batch, with what is `stream`ed for it."""
        made = [(part, self._part(step, part, batch, stream)) for part in self.parts[step.name] if part.there.any()]
        value = self._value(step.size, made)
        self.values |= {(batch, name): value for name in step.names}
        if step.written:
            self.values[batch, "new_kv"] = self._written(step.written, made)
        self.end = np.maximum.reduce([np.where(part.there, end, 0.0) for part, end in made])

    def begin(self, batch: int) -> None:
        """What a layer reads is where the last operation of the one before leaves it."""
        last = self.flow.steps[-1]
        value = self._value(last.size, [(part, self.none) for part in self.parts[last.name]])
        self.values |= {(batch, name): value for name in last.names}

    def _value(self, size: int, made: list[tuple[SidePart, Seconds]]) -> _Value:
        nowhere = np.zeros(len(self.none), dtype=np.bool_)
        return _Value(
            size, made, {"host": self.none, "accelerator": self.none}, {"host": nowhere, "accelerator": nowhere}
        )

    def _part(self, step: DataflowStep, part: SidePart, batch: int, stream: StreamedSeconds | None) -> Seconds:
        ready = self.none
        for name in step.inputs:
            if (batch, name) in self.values:
                ready = np.maximum(ready, self._brought(self.values[batch, name], part))
        arrived = self.none
        if stream is not None and part.side == "accelerator":
            arrived = self._streamed(stream, batch, part.there)
        here = part.side == "host"
        whole, turn = (step.host, step.turn_host) if here else (step.accelerator, step.turn_accelerator)
        if turn:
            arrived = self._done(part.side, arrived, turn * part.share, part.there)
        end = self._done(part.side, np.maximum(ready, arrived), whole * part.share, part.there)
        self.last = np.where(part.there, end, self.last)
        if not here:
            self._note(batch, stream, np.where(part.there, end, 0.0))
        return end

    def _note(self, batch: int, stream: StreamedSeconds | None, end: Seconds) -> None:
        """What later layers and batches wait for where streams run ahead."""
        place = self.layer, batch
        self.worked[place] = np.maximum(self.worked.get(place, self.none), end)
        if stream is not None:
            self.used[self.layer] = np.maximum(self.used.get(self.layer, self.none), end)

    def _brought(self, value: _Value, reader: SidePart) -> Seconds:
        """When `value` is where `reader` is; it crosses the first time it is read there."""
        side = reader.side
        fresh = reader.there & ~value.here[side]
        if fresh.any():
            when = [self._arrival(value, part, end, side, fresh) for part, end in value.made]
            value.at[side] = np.where(fresh, np.maximum.reduce(when), value.at[side])
            value.here[side] = value.here[side] | fresh
        return value.at[side]

    def _arrival(self, value: _Value, part: SidePart, end: Seconds, side: Side, fresh: Mask) -> Seconds:
        """When a part of `value` is on `side`, 0 where there is no such part."""
        moving = fresh & part.there
        if part.side == side or not moving.any():
            return np.where(part.there, end, 0.0)
        if side == "host" and value.kept is not None:
            if not self.flow.reshape:
                return np.where(part.there, value.kept, 0.0)
            end = np.maximum(end, value.kept)
        size = value.size * part.share
        lane, wire = self._way(side)
        seconds = wire.latency + size / wire.rate
        self.crossed[side] = self.crossed[side] + np.where(moving, size, 0.0)
        self.waited[side] = self.waited[side] + np.where(moving, seconds, 0.0)
        return np.where(part.there, self._done(lane, end, seconds, moving), 0.0)

    def _way(self, side: Side) -> tuple[Lane, Wire]:
        """The lane of activations to `side`: that of what is streamed where nothing overlaps."""
        if side == "accelerator":
            return "into" if self.flow.overlap else "link", self.flow.into
        return "back" if self.flow.overlap else "link back", self.flow.back

    def _written(self, size: int, made: list[tuple[SidePart, Seconds]]) -> _Value:
        """New keys and values: the cache is kept on the host."""
        value = self._value(size, made)
        away = [(part, end) for part, end in made if part.side == "accelerator"]
        for part, end in away:
            wire = self.flow.back
            value.kept = self._done("link back", end, wire.latency + size / wire.rate + self.none, part.there)
            self.crossed["host"] = self.crossed["host"] + np.where(part.there, size, 0.0)
        return value

    def _streamed(self, stream: StreamedSeconds, batch: int, there: Mask) -> Seconds:
        """When what is streamed has come and is expanded."""
        ready = self.none
        if batch == 0:
            stored = self._read(stream.storage, there & (stream.storage > 0))
            ready = self._over(
                stored, stream.weights, stream.weights_work, there & (stream.storage + stream.weights > 0)
            )
        moving = there & (stream.caches + stream.caches_work > 0)
        return np.maximum(ready, self._over(self._leaves(batch), stream.caches, stream.caches_work, moving))

    def _leaves(self, batch: int = 0) -> Seconds:
        """When weights, or the caches of a batch, may leave their home: after the operation before, or
        ahead of it when the buffers of the layer whose place they take are free, and caches of later batches when the
        accelerator is done with the batch before (lowering's `_may_start`, `_cache_may_start`)."""
        if self.ahead is None:
            return self.last
        if batch:
            return self.worked.get((self.layer, batch - 1), self.none)
        return self.used.get(self.layer - self.ahead - 1, self.none)

    def _read(self, seconds: Seconds, moving: Mask) -> Seconds:
        """When storage has been read; one device reads one thing after the other."""
        begin = self._leaves()
        if not moving.any():
            return begin
        return np.where(moving, self._done("storage", begin, seconds, moving), begin)

    def _over(self, begin: Seconds, seconds: Seconds, work: Seconds, moving: Mask) -> Seconds:
        if not moving.any():
            return self.none
        arrived = self._done("link", begin, seconds, moving)
        ready = self._done("unpack", arrived, work, moving & (work > 0))
        return np.where(moving, ready, 0.0)

    def _done(self, lane: Lane, ready: Seconds, seconds: Seconds, there: Mask) -> Seconds:
        """When the next task of a lane ends, for the ranges that have it."""
        free = self.free.get(lane, self.none)
        end = np.maximum(free, ready) + seconds
        self.free[lane] = np.where(there, end, free)
        return np.asarray(end)


def parts_of(step: DataflowStep, start: Indices, stop: Indices) -> tuple[SidePart, SidePart, SidePart]:
    """Return what the host does before, what the accelerator does, and what the host does after it; a host that does
    everything does it at once."""
    edges, count = np.array(step.edges), len(step.edges) - 1
    before, until = (edges[np.clip(bound - step.first, 0, count)] for bound in (start, stop))
    inside = until > before
    shares = (np.where(inside, before, 1.0), np.where(inside, until - before, 0.0), np.where(inside, 1.0 - until, 0.0))
    sides: tuple[Side, ...] = ("host", "accelerator", "host")
    first, middle, last = (SidePart(side, share, share > 0) for side, share in zip(sides, shares, strict=True))
    return first, middle, last
