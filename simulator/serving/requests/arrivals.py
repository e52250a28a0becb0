"""When requests arrive: processes of one a second, stretched to a rate, so that every rate has the same randomness."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from helmsman.schemas.errors import UsageError
from helmsman.schemas.requests import Floats, Requests

Process = Literal["poisson", "uniform", "all-at-once", "gamma"]
_PROCESSES: dict[str, Process] = {name: name for name in get_args(Process)}


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A process; `cv`: of a gamma process, the coefficient of variation of the gaps (1: Poisson, more: bursts)."""

    process: Process
    cv: float = 1.0


def parse_arrivals(text: str) -> Arrivals:
    """`poisson`, `uniform`, `all-at-once`, `gamma:2.5`. Raises UsageError."""
    name, _, cv = text.partition(":")
    if name not in _PROCESSES or (cv and name != "gamma"):
        raise UsageError("unknown arrivals", field="arrivals", value=text, remedy=f"use one of {', '.join(_PROCESSES)}")
    try:
        value = float(cv or 1.0)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 100.0:
        raise UsageError("not a coefficient of variation", field="arrivals", value=text, remedy="write gamma:2.5")
    return Arrivals(_PROCESSES[name], value)


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers for one purpose: the same for the same seed in every process, independent of other purposes."""
    return np.random.Generator(np.random.PCG64([seed, *purpose.encode()]))


def draw_arrivals(arrivals: Arrivals, count: int, rate: float, seed: int) -> Floats:
    """Return seconds at which `count` requests arrive, `rate` a second on average; the first one a gap after 0."""
    if arrivals.process == "all-at-once":
        return np.zeros(count)
    return np.cumsum(_gaps(arrivals, count, generator(seed, "arrivals"))) / rate


def _gaps(arrivals: Arrivals, count: int, random: np.random.Generator) -> Floats:
    """Gaps of mean 1."""
    if arrivals.process == "uniform":
        return np.ones(count)
    if arrivals.process == "poisson":
        return -np.log1p(-random.random(count))
    shape = arrivals.cv**-2
    return random.gamma(shape, 1.0 / shape, count)


def arrive(requests: Requests, rate: float | None, arrivals: Arrivals | None, seed: int) -> Requests:
    """Return the same requests, arriving by a process or at a rate.

    Without a process those that have times keep their pattern, stretched to the rate, and others arrive as a Poisson
    process. Without a rate a process has that of the times. Who leaves does so as long after its arrival as before.
    Raises UsageError where a rate is needed and there is none."""
    if rate is None and (arrivals is None or arrivals.process == "all-at-once"):
        return requests if arrivals is None else moved(requests, np.zeros(len(requests)))
    own = own_rate(requests)
    if rate is None and own is None:
        raise UsageError(
            "these requests have no rate of their own", field="rate", remedy="say how many arrive a second"
        )
    if arrivals is None and own is not None and rate is not None:
        return moved(requests, (requests.arrival_s - requests.arrival_s[0]) * (own / rate))
    wanted_rate = own if rate is None else rate
    assert wanted_rate is not None
    return moved(requests, draw_arrivals(arrivals or Arrivals("poisson"), len(requests), wanted_rate, seed))


def own_rate(requests: Requests) -> float | None:
    """Return requests a second from the first to the last; none where all arrive at once."""
    seconds = float(requests.arrival_s[-1] - requests.arrival_s[0])
    return (len(requests) - 1) / seconds if seconds > 0.0 else None


def moved(requests: Requests, arrival_s: Floats) -> Requests:
    """Return the same requests at other times; who leaves does so as long after its arrival as before."""
    return replace(requests, arrival_s=arrival_s, cancel_s=arrival_s + (requests.cancel_s - requests.arrival_s))
