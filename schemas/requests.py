"""Requests of a serving run: one row a request, in the order in which they arrive, as columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from helmsman.schemas.base import MAX_COUNT
from helmsman.schemas.errors import BadInputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_REQUESTS = 10_000_000
MAX_SECONDS = 1e10
"""Times later than three centuries are mistakes of units."""


@dataclass(frozen=True, slots=True)
class Requests:
    """n requests by arrival, ties in the order of their rows.

    `arrival_s` (n, seconds), `prompt_tokens` and `output_tokens` (n, at least 1), `priority` (n, smaller goes first),
    `cancel_s` (n, when the client leaves; inf: never). Blocks of `hash_block` tokens (0: no hashes) of prompt i have
    the hashes `hashes[hash_start[i]:hash_start[i + 1]]`; equal ones are equal prefixes.

    Of a closed loop `starts_s` (u users, ascending) says when each user sends a first request, and `think_s` (n) how
    long a user thinks after request i. `arrival_s` is then all 0, and `cancel_s` counts from when request i is sent.
    Requests that come by themselves have no `starts_s`."""

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    priority: Ints
    cancel_s: Floats
    hash_start: Ints
    hashes: Ints
    hash_block: int = 0
    starts_s: Floats = field(default_factory=lambda: np.zeros(0))
    think_s: Floats = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.arrival_s)

    def columns(self) -> dict[str, Any]:
        """Return the columns by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests were read: what errors call the file, its columns and the line of a row (counted from 0)."""

    file: str
    names: Mapping[str, str] = field(default_factory=dict)
    line: Callable[[int], int] = lambda row: row + 1

    def refuse(self, row: int, column: str, value: object, message: str, remedy: str) -> NoReturn:
        """Raise BadInputError about a column's value in a row."""
        place = f"line {self.line(row)}, {self.names.get(column, column)}"
        raise BadInputError(message, file=self.file, field=place, value=value, remedy=remedy)


def make_requests(
    arrival_s: Floats,
    prompt_tokens: Ints,
    output_tokens: Ints,
    priority: Ints | None = None,
    cancel_s: Floats | None = None,
) -> Requests:
    """Return requests without known prefixes, by default alike in priority and never cancelled."""
    count = len(arrival_s)
    return Requests(
        arrival_s=arrival_s,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        priority=np.zeros(count, np.int64) if priority is None else priority,
        cancel_s=np.full(count, np.inf) if cancel_s is None else cancel_s,
        hash_start=np.zeros(count + 1, np.int64),
        hashes=np.zeros(0, np.int64),
    )


def check_requests(requests: Requests, place: Place) -> Requests:
    """Return the same requests. Raises BadInputError naming line, column and value of the first that cannot be."""
    if not len(requests):
        raise BadInputError("no requests", file=place.file, remedy="add at least one row")
    if len(requests) > MAX_REQUESTS:
        raise BadInputError(
            "too many requests", file=place.file, value=len(requests), remedy=f"use at most {MAX_REQUESTS}"
        )
    for column in ("prompt_tokens", "output_tokens"):
        _check_tokens(getattr(requests, column), column, place)
    _check_times(requests, place)
    _check_hashes(requests, place)
    return requests


def _first(wrong: NDArray[np.bool_]) -> int | None:
    """Return the first row that is wrong."""
    return int(np.argmax(wrong)) if wrong.any() else None


def _check_tokens(tokens: Ints, column: str, place: Place) -> None:
    row = _first((tokens < 1) | (tokens > MAX_COUNT))
    if row is not None:
        remedy = "leave the row out, or correct it"
        place.refuse(row, column, int(tokens[row]), f"must be between 1 and {MAX_COUNT} tokens", remedy)


def _check_times(requests: Requests, place: Place) -> None:
    times = requests.arrival_s
    row = _first(~((times >= 0.0) & (times <= MAX_SECONDS)))
    if row is not None:
        remedy = "write a time at or after the first request's, in the column's unit"
        place.refuse(row, "arrival_s", float(times[row]), f"must be between 0 and {MAX_SECONDS:g} s", remedy)
    row = _first(np.diff(times) < 0.0)
    if row is not None:
        message = f"earlier than the request before it, at {float(times[row]):g} s"
        place.refuse(row + 1, "arrival_s", float(times[row + 1]), message, "sort the rows by time, or use --sort")
    row = _first(~(requests.cancel_s >= times))
    if row is not None:
        remedy = "write the time at which the client leaves, or leave it out"
        place.refuse(row, "cancel_s", float(requests.cancel_s[row]), "cancelled before it arrives", remedy)


def _check_hashes(requests: Requests, place: Place) -> None:
    if not requests.hash_block:
        return
    blocks = np.diff(requests.hash_start)
    row = _first(blocks * requests.hash_block >= requests.prompt_tokens + requests.hash_block)
    if row is not None:
        message = f"more blocks of {requests.hash_block} tokens than the prompt of {requests.prompt_tokens[row]} has"
        place.refuse(row, "hashes", int(blocks[row]), message, "write one hash for each block of the prompt")


def sort_requests(requests: Requests) -> Requests:
    """Return the same requests by arrival; ties stay in the order of their rows."""
    order = np.argsort(requests.arrival_s, kind="stable")
    return take_requests(requests, order)


def take_requests(requests: Requests, rows: Ints) -> Requests:
    """Return the requests of some rows, in that order."""
    counts = np.diff(requests.hash_start)[rows]
    start = np.concatenate([[0], np.cumsum(counts)])
    shift = np.repeat(requests.hash_start[:-1][rows] - start[:-1], counts)
    return Requests(
        arrival_s=requests.arrival_s[rows],
        prompt_tokens=requests.prompt_tokens[rows],
        output_tokens=requests.output_tokens[rows],
        priority=requests.priority[rows],
        cancel_s=requests.cancel_s[rows],
        hash_start=start,
        hashes=requests.hashes[np.arange(start[-1]) + shift],
        hash_block=requests.hash_block,
    )
