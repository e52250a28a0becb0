"""Writes capacities under an SLO for people."""

from collections.abc import Iterator

from helmsman.schemas.serving import ServingCapacity, ServingCount
from helmsman.simulator.serving.text import slo_text


def capacity_text(capacity: ServingCapacity) -> str:
    """Return the maximum rate, its interval and what it was found from."""
    interval = _interval(capacity.low, capacity.high)
    rate = f"{'capacity':<14}{capacity.rate:.4g} requests/s{interval} ({_effort(capacity)})"
    return "\n".join([*_question(capacity), rate, *_doubt(capacity)])


def count_text(count: ServingCount) -> str:
    """Return the most users or the fewest replicas, the interval of the mean over seeds, and what it was found from."""
    rate = "" if count.rate is None else f" for {count.rate:.4g} requests/s"
    think = f" who think for {count.run.think or 'no time'}" if count.of == "users" else ""
    interval = _interval(count.low, count.high)
    number = f"{count.of:<14}{count.count}{think}{rate}{interval} ({_effort(count)})"
    return "\n".join([*_question(count), number, *_doubt(count)])


def _question(answer: ServingCapacity | ServingCount) -> Iterator[str]:
    yield f"{'policy':<14}{answer.run.policy}"
    yield f"{'SLO':<14}{slo_text(answer.slo)}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f", 95 % interval {low:.4g} to {high:.4g}"


def _effort(answer: ServingCapacity | ServingCount) -> str:
    seeds = f"{len(answer.seeds)} {'seed' if len(answer.seeds) == 1 else 'seeds'}"
    return f"{seeds}, {answer.runs} runs, {answer.requests} requests each at last"


def _doubt(answer: ServingCapacity | ServingCount) -> Iterator[str]:
    if answer.converged is False:
        yield f"{'':<14}not converged: longer runs or other seeds may change it by more than a few per cent"
