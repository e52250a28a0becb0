"""Expects the seconds of a case with today's model: predicted in closed form, and simulated by replaying the plan."""

from collections.abc import Mapping
from dataclasses import dataclass

from helmsman.gate.cases import Case
from helmsman.library import serve_simulation, simulate
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.prediction.predict import predict
from helmsman.schemas.gate_case import ServeMeasure
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

SERVED = ("ttft", "tpot", "e2e")
"""Latencies of served requests, of which the median counts."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Seconds by figure, as the cost model predicts them and as a replay in virtual time gives them."""

    predicted: Mapping[str, float]
    simulated: Mapping[str, float]


def expectation_of(case: Case, workload: Workload | None = None) -> Expectation:
    """Return what today's model expects of the case, whatever its plan says was predicted when it was made.

    `workload`: the one that was measured, where it is not the plan's. Raises what a record cannot price."""
    plan = case.priced if workload is None else case.priced.model_copy(update={"workload": workload})
    measure = case.document.measure
    if isinstance(measure, ServeMeasure):
        served = _served(plan, measure, str(case.path(measure.requests)))
        return Expectation(served, served)
    return expectation_of_plan(plan)


def expectation_of_plan(plan: Plan) -> Expectation:
    """Return what today's model expects of one request that a plan runs: `ttft`, `request`, and `step` where more than
    one token is made."""
    return Expectation(_predicted(plan), _simulated(plan))


def _predicted(plan: Plan) -> dict[str, float]:
    predicted = predict(plan, cost_model(plan))
    ttft, step = predicted.ttft.seconds.mid, predicted.decode.seconds.mid
    later = plan.workload.output_tokens - 1
    return {"ttft": ttft, "request": ttft + later * step} | ({"step": step} if later else {})


def _simulated(plan: Plan) -> dict[str, float]:
    report = simulate(plan)
    seconds = {"ttft": report.ttft_s, "request": report.e2e_s, "step": report.tpot_s}
    return {figure: value for figure, value in seconds.items() if value is not None}


def _served(plan: Plan, measure: ServeMeasure, file: str) -> dict[str, float]:
    requests = measure.requests if measure.requests.startswith("synthetic:") else file
    latency = serve_simulation(plan, {"requests": requests, "policy": measure.policy}).latency
    spreads = {figure: getattr(latency, figure) for figure in SERVED}
    return {figure: spread.p50 for figure, spread in spreads.items() if spread is not None}
