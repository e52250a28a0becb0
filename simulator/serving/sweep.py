"""Runs that differ in one thing: what is swept, over which values, and throughput relative to one policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from helmsman.schemas.errors import UsageError
from helmsman.schemas.serving import ServingReport, ServingSweep, SweepPoint

Over = Literal["rate", "output", "input", "cpu-bandwidth"]
OVER: dict[str, Over] = {"rate": "rate", "output": "output", "input": "input", "cpu-bandwidth": "cpu-bandwidth"}
MOST_POINTS = 1000
_EXAMPLE = "write rate=0.5:8:0.5, output=50:800:50, input=500,1000 or cpu-bandwidth=0.5,1,2,4"


@dataclass(frozen=True, slots=True)
class Sweep:
    """The quantity that is swept, and its values: requests a second, tokens, or multiples of the host's bandwidth."""

    over: Over
    values: tuple[float, ...]


def parse_sweep(text: str) -> Sweep:
    """`rate=0.5:8:0.5` (first, last, step) or `rate=1,2,4`. Raises UsageError."""
    name, _, values = text.partition("=")
    if name not in OVER or not values:
        raise UsageError("not a sweep", field="sweep", value=text, remedy=_EXAMPLE)
    points = _range(values, text) if ":" in values else tuple(_number(word, text) for word in values.split(","))
    if name in ("output", "input") and any(value != round(value) for value in points):
        raise UsageError("tokens are whole", field="sweep", value=text, remedy=_EXAMPLE)
    return Sweep(OVER[name], points)


def _range(values: str, text: str) -> tuple[float, ...]:
    numbers = [_number(word, text) for word in values.split(":")]
    if len(numbers) != 3 or numbers[0] > numbers[1]:
        raise UsageError("not a range", field="sweep", value=text, remedy=_EXAMPLE)
    first, last, step = numbers
    count = int((last - first) / step + 1e-9) + 1
    if count > MOST_POINTS:
        raise UsageError(f"more than {MOST_POINTS} points", field="sweep", value=text, remedy="use a larger step")
    return tuple(round(first + place * step, 12) for place in range(count))


def _number(part: str, text: str) -> float:
    try:
        value = float(part)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and value > 0.0):
        raise UsageError("not a positive number", field="sweep", value=text, remedy=_EXAMPLE)
    return value


def sweep(
    question: Sweep, policies: Sequence[str], run: Callable[[float, str], ServingReport], relative_to: str | None = None
) -> ServingSweep:
    """Run every policy at every value, and compute output tokens/s relative to one of them where asked. `run`: one
    run."""
    points: list[SweepPoint] = []
    names = [*policies, *([relative_to] if relative_to and relative_to not in policies else [])]
    for value in question.values:
        reports = {policy: run(value, policy) for policy in names}
        base = reports[relative_to].throughput.output_tokens if relative_to else 0.0
        points += [
            SweepPoint(
                value=value,
                policy=policy,
                report=report,
                relative=report.throughput.output_tokens / base if base > 0.0 else None,
            )
            for policy, report in reports.items()
        ]
    return ServingSweep(over=question.over, relative_to=relative_to, points=tuple(points))


def keeps_somewhere(serving_sweep: ServingSweep, policies: Sequence[str]) -> bool:
    """Whether one of `policies` keeps the SLO at any value: curves of load are meant to go on to where it is missed."""
    mine = [point.report.goodput for point in serving_sweep.points if point.policy in policies]
    return any(goodput is not None and goodput.met for goodput in mine)
