"""Why one plan is slower than another, in one clause: the part of a step, or of prompts, that differs most."""

from collections import defaultdict

from helmsman.planner.prediction.speed import speed
from helmsman.planner.words.plan_words import device_name
from helmsman.schemas.hardware import lane_owner
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import PhasePrediction
from helmsman.schemas.units import format_seconds

_ALIKE = 0.01
"""The relative difference of two requests that is none."""


def why_slower(yours: Plan, best: Plan) -> str:
    """Return `steps spend 41 ms on the CPU instead of 8.1 ms, most of it on down`; for plans that take as long, that
    they do. Where prompts make more of the difference of a request, they are told instead of steps."""
    ours, other = speed(yours), speed(best)
    if abs(ours.request.mid - other.request.mid) <= _ALIKE * other.request.mid:
        return "both take as long"
    steps = abs(ours.step.mid - other.step.mid) * yours.workload.decode_steps
    prompts = abs(ours.ttft.mid - other.ttft.mid)
    if steps >= prompts:
        return f"steps {_difference(yours, best, yours.predicted.decode, best.predicted.decode)}"
    return f"the prompt {_difference(yours, best, yours.predicted.prefill, best.predicted.prefill)}"


def _difference(yours: Plan, best: Plan, mine: PhasePrediction, other: PhasePrediction) -> str:
    """Return what the lane whose time differs most takes in each, and the operation that makes most of that."""
    lanes = _by_lane(mine), _by_lane(other)
    slower = mine.seconds.mid >= other.seconds.mid
    sign = 1.0 if slower else -1.0
    lane = max({*lanes[0], *lanes[1]}, key=lambda name: (sign * (lanes[0][name] - lanes[1][name]), name))
    ops = _by_op(mine, lane), _by_op(other, lane)
    op = max({*ops[0], *ops[1]}, key=lambda name: (sign * (ops[0][name] - ops[1][name]), name))
    names = {device.name for device in (*yours.hardware.devices, *best.hardware.devices)}
    hardware = yours.hardware if lane in {device.name for device in yours.hardware.devices} else best.hardware
    where = f"on the {device_name(hardware, lane)}" if lane in names else f"on the link {lane}"
    mine_took, other_took = format_seconds(lanes[0][lane]), format_seconds(lanes[1][lane])
    verb = "spend" if mine is yours.predicted.decode else "spends"
    return f"{verb} {mine_took} {where} instead of {other_took}, most of the difference with {op}"


def _by_lane(phase: PhasePrediction) -> dict[str, float]:
    result = defaultdict[str, float](float)
    for term in phase.terms:
        result[lane_owner(term.resource)] += term.seconds.mid
    return result


def _by_op(phase: PhasePrediction, lane: str) -> dict[str, float]:
    result = defaultdict[str, float](float)
    for term in phase.terms:
        if lane_owner(term.resource) == lane:
            result[term.op] += term.seconds.mid
    return result
