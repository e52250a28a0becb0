"""How fast a plan does its whole workload, in the terms in which strategies are compared."""

from helmsman.lowering.placement import batches_together
from helmsman.planner.prediction.objective import objective_seconds
from helmsman.schemas.comparison import Planned, Speed
from helmsman.schemas.objective import Objective
from helmsman.schemas.plan import Interval, Plan


def planned(plan: Plan) -> Planned:
    """Return what a comparison says of a plan."""
    return Planned(label=plan.label, speed=speed(plan), memory=plan.predicted.memory)


def speed(plan: Plan) -> Speed:
    """Seconds and tokens/s of the plan's whole workload; uncertain terms add linearly, as in a plan."""
    work, predicted = plan.workload, plan.predicted
    turns = work.batches / batches_together(plan)
    first, step = _scaled(predicted.ttft.seconds, turns), _scaled(predicted.decode.seconds, turns)
    request = objective_seconds(predicted, work, batches_together(plan), "request")
    sequences = work.batch * work.batches
    rates = _over(sequences, step), _over(sequences * work.output_tokens, request)
    return Speed(ttft=first, step=step, request=request, decode_rate=rates[0], rate=rates[1])


def seconds(planned: Planned, objective: Objective) -> float:
    """Return the seconds that the objective makes least."""
    return interval(planned, objective).mid


def interval(planned: Planned, objective: Objective) -> Interval:
    """Return the seconds that the objective makes least, with their spread."""
    of = planned.speed
    return {"request": of.request, "latency": of.step, "ttft": of.ttft, "throughput": of.request}[objective]


def _scaled(times: Interval, factor: float) -> Interval:
    return Interval(low=times.low * factor, mid=times.mid * factor, high=times.high * factor)


def _over(count: int, times: Interval) -> Interval:
    return Interval(low=count / times.high, mid=count / times.mid, high=count / times.low)
