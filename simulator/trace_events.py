"""Trace Event JSON, which ui.perfetto.dev and chrome://tracing show: events as text, and the document around them."""

import json
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]

DEFAULT_LIMIT = 16 * 2**20
"""Bytes of a file at most: what viewers in a browser open without waiting."""
RESERVED = 1024
"""Bytes of a file that are kept for its head and end."""

_NANOSECONDS = 1e9


def event_text(content: Event) -> str:
    """Return an event, or anything else that is JSON, as ASCII text without spaces."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def document_text(head: dict[str, Any], parts: Iterable[str]) -> str:
    """Return the whole file: `head` says what it is of, `parts` are texts of events, several of one joined already."""
    opening = f'{{"displayTimeUnit":"ms","otherData":{event_text(head)},"traceEvents":[\n'
    return opening + ",\n".join(parts) + "\n]}\n"


def nanoseconds(seconds: float) -> int:
    """Return whole nanoseconds: rounding every moment alike keeps what nested nested and what touched touching."""
    return round(seconds * _NANOSECONDS)


def process_name(pid: int, name: str) -> Event:
    """Return the event that names a process."""
    return {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}


def counter(pid: int, name: str, moment: int, values: dict[str, float]) -> Event:
    """Return the event that sets the series of a counter from `moment` on, in nanoseconds."""
    return {"ph": "C", "pid": pid, "tid": 0, "name": name, "ts": moment / 1000, "args": values}
