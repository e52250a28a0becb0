"""A serving run as a Chrome/Perfetto timeline: every request's wait, prompt and tokens, and counters over time."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from helmsman.schemas.requests import Floats
from helmsman.schemas.served_table import STATUSES, ServedTable
from helmsman.simulator.serving.requests_in_system import present, running, thinned
from helmsman.simulator.serving.run import Occupancy
from helmsman.simulator.trace_events import (
    DEFAULT_LIMIT,
    RESERVED,
    Event,
    counter,
    document_text,
    event_text,
    nanoseconds,
    process_name,
)

_COUNTERS = 0
"""The process of what is counted over all replicas."""
_MAX_MOMENTS = 4000
"""Moments of a counter at most: more than a screen has pixels across."""


class ServingTimeline(NamedTuple):
    """A timeline as `text`, how many requests are in it, and how many were `dropped` for its size."""

    text: str
    written: int
    dropped: int


def serving_timeline(
    served: ServedTable, occupancy: Occupancy, title: str, limit: int = DEFAULT_LIMIT
) -> ServingTimeline:
    """Return a timeline as Trace Event JSON of at most `limit` bytes, the same every time.

    A replica is a process, in which each request that came to an end is a track with what it waited, its prompt and its
    output; counters say how many requests were there and running, and which share of each cache was in use. Requests
    that do not fit are dropped, the last to arrive first; `otherData` says how many were written and how many
    dropped."""
    last = int(served.replica.max(initial=-1))
    parts = [event_text(process_name(_COUNTERS, title))]
    parts += [event_text(process_name(replica + 1, f"replica {replica}")) for replica in range(last + 1)]
    ended = np.flatnonzero(~np.isnan(served.finish_s))
    if np.any(served.replica[ended] < 0):
        parts.append(event_text(process_name(last + 2, "served by none")))
    parts += [event_text(event) for event in _counters(served, occupancy)]
    room = limit - RESERVED - len(event_text({title: 0})) - sum(len(part) + 2 for part in parts)
    ended, written = ended[np.argsort(served.arrival_s[ended], kind="stable")], 0
    for row in ended.tolist():
        pid = 1 + (int(served.replica[row]) if served.replica[row] >= 0 else last + 1)
        chunk = ",\n".join(map(event_text, _request(served, row, pid)))
        room -= len(chunk) + 2
        if room < 0:
            break
        parts.append(chunk)
        written += 1
    dropped = len(ended) - written
    head = {"title": title, "requests_written": written, "requests_dropped": dropped}
    return ServingTimeline(document_text(head, parts), written, dropped)


def _request(served: ServedTable, row: int, pid: int) -> Iterator[Event]:
    """Yield begins and ends of a request's parts, within those of the whole."""
    arrival, finish = (nanoseconds(float(moments[row])) for moments in (served.arrival_s, served.finish_s))
    started, first = (
        None if np.isnan(moments[row]) else nanoseconds(float(moments[row]))
        for moments in (served.started_s, served.first_token_s)
    )
    number = int(served.request[row])
    facts = {"prompt_tokens": int(served.prompt_tokens[row]), "output_tokens": int(served.produced[row])}
    facts |= {"cpu_tokens": int(served.cpu_tokens[row]), "preemptions": int(served.preemptions[row])}
    shared = {"cat": "request", "id": number, "pid": pid, "tid": 0}
    about = {"status": STATUSES[int(served.status[row])], **facts}
    yield {**shared, "ph": "b", "name": f"request {number}", "ts": arrival / 1000, "args": about}
    parts = (("waits", arrival, started), ("prompt", started, first), ("output", first, finish))
    for name, begin, end in parts:
        if begin is not None:
            yield {**shared, "ph": "b", "name": name, "ts": begin / 1000}
            yield {**shared, "ph": "e", "name": name, "ts": (finish if end is None else end) / 1000}
    yield {**shared, "ph": "e", "name": f"request {number}", "ts": finish / 1000}


def _counters(served: ServedTable, occupancy: Occupancy) -> Iterator[Event]:
    for name, steps in (("requests there", present(served)), ("requests running", running(served))):
        yield from _series(name, steps.at_s, steps.count.astype(np.float64))
    for name, share in (("cache on the accelerator", occupancy.gpu_share), ("cache on the host", occupancy.cpu_share)):
        if share is not None:
            yield from _series(f"{name}, %", occupancy.at_s, 100.0 * share)


def _series(name: str, at_s: Floats, values: Floats) -> Iterator[Event]:
    """Yield the values of a counter; of very many, some evenly apart."""
    for row in thinned(len(at_s), _MAX_MOMENTS).tolist():
        yield counter(_COUNTERS, name, nanoseconds(float(at_s[row])), {"value": float(f"{values[row]:.5g}")})
