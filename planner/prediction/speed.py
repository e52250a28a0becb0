"""How fast a plan does its whole workload, in the terms in which strategies are compared."""

from typing import Protocol

from helmsman.lowering.placement import batches_of
from helmsman.planner.prediction.objective import Phases, objective_seconds
from helmsman.schemas.comparison import Planned, Speed
from helmsman.schemas.objective import Objective
from helmsman.schemas.plan import Plan, Schedule
from helmsman.schemas.predicted import Interval
from helmsman.schemas.workload import Workload


class Timed(Protocol):
    """A plan, or its outline: for which tokens, in which order, in how many seconds."""

    @property
    def workload(self) -> Workload:
        """For which tokens."""

    @property
    def schedule(self) -> Schedule:
        """How a pass is ordered."""

    @property
    def predicted(self) -> Phases:
        """The seconds of both phases."""


def planned(plan: Plan) -> Planned:
    """Return what a comparison says of a plan."""
    return Planned(label=plan.label, speed=speed(plan), memory=plan.predicted.memory)


def speed(plan: Timed) -> Speed:
    """Seconds and tokens/s of the plan's whole workload; uncertain terms add linearly, as in a plan."""
    work, predicted = plan.workload, plan.predicted
    together = batches_of(work, plan.schedule)
    turns = work.batches / together
    first, step = _scaled(predicted.prefill.seconds, turns), _scaled(predicted.decode.seconds, turns)
    request = objective_seconds(predicted, work, together, "request")
    sequences = work.batch * work.batches
    rates = _over(sequences, step), _over(sequences * work.output_tokens, request)
    return Speed(ttft=first, step=step, request=request, decode_rate=rates[0], rate=rates[1])


def seconds(planned: Planned, objective: Objective) -> float:
    """Return the seconds that the objective makes least."""
    return interval(planned, objective).mid


def interval(planned: Planned, objective: Objective) -> Interval:
    """Return the seconds that the objective makes least, with their spread."""
    return objective_of(planned.speed, objective)


def objective_of(of: Speed, objective: Objective) -> Interval:
    """Return the same of a speed."""
    return {"request": of.request, "latency": of.step, "ttft": of.ttft, "throughput": of.request}[objective]


def _scaled(times: Interval, factor: float) -> Interval:
    return Interval(low=times.low * factor, mid=times.mid * factor, high=times.high * factor)


def _over(count: int, times: Interval) -> Interval:
    return Interval(low=count / times.high, mid=count / times.mid, high=count / times.low)
