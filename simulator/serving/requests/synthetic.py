"""Requests made up from a line such as `synthetic:n=2000,input=1000,output=200,rate=2,arrivals=poisson`."""

from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, Literal, get_args

import numpy as np

from helmsman.schemas.base import MAX_COUNT
from helmsman.schemas.errors import UsageError
from helmsman.schemas.requests import MAX_REQUESTS, Floats, Ints, Requests, make_requests
from helmsman.simulator.serving.requests.arrivals import Arrivals, draw_arrivals, generator, parse_arrivals

PREFIX = "synthetic:"
Lengths = Literal["uniform", "fixed", "exponential"]
_EXAMPLE = "synthetic:n=2000,input=1000,output=200,rate=2,arrivals=poisson"


POISSON = Arrivals("poisson")


@dataclass(frozen=True, slots=True)
class Synthetic:
    """`n` requests of mean lengths `input` and `output`, `rate` a second (0: all at once).

    `lengths`: independent and uniform in [0.9, 1.1] of the mean (NEO-35), all alike, or exponential (rounded up)."""

    n: int = 1000
    input: int = 1000
    output: int = 200
    rate: float = 0.0
    arrivals: Arrivals = POISSON
    lengths: Lengths = "uniform"


def parse_synthetic(text: str) -> Synthetic:
    """Return the specification after `synthetic:`. Raises UsageError."""
    values: dict[str, Any] = {}
    for part in filter(None, text.removeprefix(PREFIX).split(",")):
        name, equals, value = part.partition("=")
        if not equals or name not in {f.name for f in fields(Synthetic)} or name in values:
            raise _wrong(part, f"use each of {', '.join(f.name for f in fields(Synthetic))} once, as in {_EXAMPLE}")
        values[name] = _value(name, value, part)
    return Synthetic(**values)


def _value(name: str, value: str, part: str) -> Any:
    if name == "arrivals":
        try:
            return parse_arrivals(value)
        except UsageError as error:
            error.field = "requests"
            raise
    if name == "lengths":
        if value not in get_args(Lengths):
            raise _wrong(part, f"use one of {', '.join(get_args(Lengths))}")
        return value
    return (
        _rate(value, part) if name == "rate" else _count(value, part, MAX_REQUESTS if name == "n" else MAX_COUNT // 100)
    )


def _rate(value: str, part: str) -> float:
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not (isfinite(rate) and rate >= 0.0):
        raise _wrong(part, "write requests a second, such as rate=2; 0 for all at once")
    return rate


def _count(value: str, part: str, most: int) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) < 12 and 1 <= int(value) <= most):
        raise _wrong(part, f"write a whole number between 1 and {most}")
    return int(value)


def _wrong(part: str, remedy: str) -> UsageError:
    return UsageError("not a specification of requests", field="requests", value=part, remedy=remedy)


def make_synthetic(synthetic: Synthetic, seed: int) -> Requests:
    """Return the requests; the same for the same seed."""
    arrivals = synthetic.arrivals if synthetic.rate > 0.0 else Arrivals("all-at-once")
    arrival = draw_arrivals(arrivals, synthetic.n, synthetic.rate, seed)
    prompt = _lengths(synthetic.lengths, synthetic.input, synthetic.n, generator(seed, "prompts"))
    output = _lengths(synthetic.lengths, synthetic.output, synthetic.n, generator(seed, "outputs"))
    return make_requests(arrival, prompt, output)


def _lengths(kind: Lengths, mean: int, count: int, random: np.random.Generator) -> Ints:
    if kind == "fixed":
        return np.full(count, mean, np.int64)
    drawn = random.random(count)
    if kind == "uniform":
        low, high = max(1, round(0.9 * mean)), round(1.1 * mean)
        return low + np.floor(drawn * (high - low + 1)).astype(np.int64)
    lengths: Floats = np.ceil(-np.log1p(-drawn) * mean)
    return lengths.clip(1.0, MAX_COUNT).astype(np.int64)
