"""Seconds per layer by the clock: of one batch whose data is there, and of batches that wait for what is streamed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from helmsman.planner.strategies.op_split.clock import LayerEstimate, Mask, StreamedSeconds
from helmsman.planner.strategies.op_split.dataflow import Dataflow
from helmsman.planner.strategies.op_split.pipeline import Indices, Seconds, taken

_WARM_UP = 1
"""The number of layers until the first and last no longer matter."""

_TIMED = 3
"""The number of layers whose mean is taken."""

_CATCH_UP = 2
"""The number of further layers until what comes ahead has caught up with the work."""

MOST_BATCHES = 4
"""The number of batches that are followed at most; each more adds what the last of these did."""

Streamed = Mapping[str, StreamedSeconds | None]
"""By step, what is streamed for it in every range; None for nothing in any."""


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """One batch of a layer whose data is there, per range: seconds of the chain of its operations and of what crosses
    (`chain`), seconds of each lane of activations, bytes that cross each way."""

    chain: Seconds
    into: Seconds
    back: Seconds
    bytes_into: Seconds
    bytes_back: Seconds


def crossings(flow: Dataflow, start: Indices, stop: Indices) -> Crossings:
    """Return what the boundaries of every range cost; exact where operations are priced as their chunks are.

    A layer after whose last operation every lane is free is followed by one just like it; others are followed for a
    layer more."""
    result, unsettled = _crossed(flow, start, stop, 1)
    rows = np.flatnonzero(unsettled)
    if len(rows):
        again, _ = _crossed(flow, start[rows], stop[rows], _WARM_UP + 1)
        for name in Crossings.__slots__:
            getattr(result, name)[rows] = getattr(again, name)
    return result


def _crossed(flow: Dataflow, start: Indices, stop: Indices, layers: int) -> tuple[Crossings, Mask]:
    """The last of so many layers, and where the next one would not be like it."""
    clock = LayerEstimate(flow, start, stop)
    clock.begin(0)
    ends = [clock.end]
    for _ in range(layers):
        for step in flow.steps:
            clock.step(step, 0, None)
        ends.append(clock.end)
    crossings = Crossings(
        chain=ends[-1] - ends[-2],
        into=clock.waited["accelerator"] / layers,
        back=clock.waited["host"] / layers,
        bytes_into=clock.crossed["accelerator"] / layers,
        bytes_back=clock.crossed["host"] / layers,
    )
    return crossings, clock.unsettled


def period(
    flow: Dataflow, streams: Streamed, start: Indices, stop: Indices, batches: int, ahead: int | None
) -> Seconds:
    """Seconds per layer of all batches, operation by operation and transfer by transfer, in lowering's order; `ahead`:
    by so many layers streams come before their use, None: each follows the operation before.

    Followed for up to MOST_BATCHES batches; more of them add what the last one added."""
    if batches <= MOST_BATCHES:
        return _followed(flow, streams, start, stop, batches, ahead)
    fewer, most = (_followed(flow, streams, start, stop, MOST_BATCHES - less, ahead) for less in (1, 0))
    return np.asarray(most + (batches - MOST_BATCHES) * (most - fewer))


def _followed(
    flow: Dataflow, streams: Streamed, start: Indices, stop: Indices, batches: int, ahead: int | None
) -> Seconds:
    """Ranges whose work leaves the host at the same operation take turns alike: each such group has a clock."""
    seconds, leaving = np.zeros(len(start)), departure(flow, start, stop)
    for first in np.unique(leaving) if batches > 1 else (None,):
        rows = np.arange(len(start)) if first is None else np.flatnonzero(leaving == first)
        turn = 0 if first is None else int(first)
        here = {name: None if stream is None else taken(stream, rows) for name, stream in streams.items()}
        seconds[rows] = _turns(LayerEstimate(flow, start[rows], stop[rows], ahead), here, batches, turn)
    return seconds


def _turns(clock: LayerEstimate, streams: Streamed, batches: int, first: int) -> Seconds:
    """A turn of a batch: the operations from `first` on, then those before it in the next layer."""
    flow, ends = clock.flow, []
    for batch in range(batches):
        clock.begin(batch)
    warm = _WARM_UP if clock.ahead is None else _WARM_UP + _CATCH_UP
    for layer in range(warm + _TIMED):
        for batch in range(batches):
            for steps, clock.layer in ((flow.steps[first:], layer), (flow.steps[:first], layer + 1)):
                for step in steps:
                    clock.step(step, batch, streams[step.name])
        ends.append(clock.end)
    return np.asarray((ends[-1] - ends[warm - 1]) / _TIMED)


def departure(flow: Dataflow, start: Indices, stop: Indices) -> Indices:
    """The first operation that is not wholly on the side where the layer ends; 0 if there is none."""
    clock = LayerEstimate(flow, start, stop)
    _, middle, last = clock.parts[flow.steps[-1].name]
    away = ~last.there & middle.there
    split_steps = [
        np.where(away, before.there | after.there, there.there)
        for before, there, after in (clock.parts[step.name] for step in flow.steps)
    ]
    return np.asarray(np.argmax(np.array(split_steps), axis=0), dtype=np.int64)
