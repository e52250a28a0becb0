"""How far the errors of a served run would move if it were run again: batch means.

Requests that follow each other wait for the same queue, so they are no independent samples. The run is cut into a few
batches of consecutive arrivals; the errors of the batches, each measured against the same requests simulated, differ by
what differs between runs of that length, and the standard error of their mean is the noise of the whole (Law and
Kelton, Simulation Modeling and Analysis, batch means)."""

from collections.abc import Iterator
from math import sqrt
from statistics import stdev

import numpy as np

from helmsman.schemas.requests import Floats
from helmsman.schemas.served_table import FINISHED, ServedTable

BATCHES = 5
"""Fewer have no spread to speak of, more are too short to hold a queue."""
FEWEST = 4
"""Requests of a batch, at least."""


def batch_noise(simulated: ServedTable, measured: ServedTable) -> dict[str, float]:
    """Return the standard error of each figure's relative error, by the names of `analysis.served_comparison`; nothing
    for short runs."""
    if len(measured) < BATCHES * FEWEST:
        return {}
    order = np.argsort(simulated.arrival_s, kind="stable")
    errors: dict[str, list[float]] = {}
    for rows in np.array_split(order, BATCHES):
        both = dict(_figures(simulated, rows)), dict(_figures(measured, rows))
        for what in both[0].keys() & both[1].keys():
            if both[0][what] > 0.0:
                errors.setdefault(what, []).append(both[1][what] / both[0][what] - 1.0)
    return {what: stdev(error) / sqrt(len(error)) for what, error in errors.items() if len(error) == BATCHES}


def _figures(served: ServedTable, rows: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> Iterator[tuple[str, float]]:
    """Figures of those of `rows` that finished."""
    rows = rows[served.status[rows] == FINISHED]
    if len(rows) == 0:
        return
    begun, first, last = (getattr(served, name)[rows] for name in ("arrival_s", "first_token_s", "finish_s"))
    produced = served.produced[rows]
    yield "throughput", float(produced.sum() / (last.max() - begun.min()))
    yield from _spread("ttft", first - begun)
    yield from _spread("e2e", last - begun)
    several = produced > 1
    if several.any():
        yield from _spread("tpot", ((last - first)[several] / (produced[several] - 1)))


def _spread(name: str, values: Floats) -> Iterator[tuple[str, float]]:
    for share in (50, 99):
        yield f"{name} p{share}", float(np.percentile(values, share))
