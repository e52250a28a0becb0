"""The parts of a pass add up to it: time between passes, and the thread that launches for all devices of a host."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from plans import figure

from helmsman.analysis.attribution import BETWEEN, difference
from helmsman.analysis.expected_pass import expect
from helmsman.analysis.passes import MeasuredPass, passes_of
from helmsman.analysis.scaling import Scaling
from helmsman.cli.plan import main
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document
from helmsman.schemas.trace import Span
from helmsman.simulator.pricing import median_price
from helmsman.simulator.stream import timeline
from helmsman.timing.pools import THREAD

STEPS = 3


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Matrices shared by a GPU and a CPU that one thread drives: longer than either works."""
    made = tmp_path_factory.mktemp("eager") / "plan.json"
    asked = ["--model", "Qwen3-0.6B", "--hw", "l40s-epyc7413", "--vram-avail", "700MB", "--strategy", "hetegen"]
    assert main([*asked, "--prompt-tokens", "16", "--output-tokens", str(STEPS + 1), "-q", "-o", str(made)]) == 0
    plan = read_document(Plan, made)
    source = next(iter(plan.hardware.sources))
    begin = {name: figure(2e-4).model_copy(update={"source": source}) for name in ("cpu", "cuda")}
    submission = figure(5e-7).model_copy(update={"source": source})
    between = BetweenPasses(begin=begin, submission=submission)
    return plan.model_copy(update={"hardware": plan.hardware.model_copy(update={"between_passes": between})})


def passes(plan: Plan, simulated: Sequence[Span], slow: float = 1.0) -> list[MeasuredPass]:
    """The passes of a run that takes `slow` times as long as the plan's prices say."""
    costs, price = cost_model(plan), median_price(plan)
    expected = expect(plan, plan.workload, costs, range(STEPS + 1), simulated)
    measured = timeline(plan, lambda task: slow * price(task), costs.between(), STEPS)
    return passes_of([replace(span, source="measured") for span in measured], expected, Scaling(plan.hardware, ()))


@pytest.mark.parametrize("given", [False, True])
def test_idle_work_and_launching_are_the_pass(eager: Plan, given: bool) -> None:
    """Also where its simulation is read from a Trace, which has spans of tasks only."""
    simulated = list(timeline(eager, median_price(eager), cost_model(eager).between(), STEPS)) if given else []
    for one in passes(eager, simulated):
        whole, terms = one.total(), one.terms()
        assert whole.simulated == pytest.approx(whole.predicted, rel=1e-9)
        launching = terms[one.phase, THREAD, ""]
        busy = whole.predicted - terms[one.phase, "idle", ""].predicted - launching.predicted
        lanes: dict[str, float] = {}
        for (_, _, lane), term in terms.items():
            if lane:
                lanes[lane] = lanes.get(lane, 0.0) + term.predicted
        assert launching.predicted > 0.05 * whole.predicted and launching.measured == 0.0
        assert max(lanes.values()) <= busy * (1 + 1e-9) and busy <= sum(lanes.values())


@pytest.mark.parametrize("slow", [1.0, 1.5])
def test_the_parts_of_a_difference_are_the_difference(eager: Plan, slow: float) -> None:
    for one in passes(eager, (), slow)[1:]:
        whole, found = one.total(), difference([[one]])
        assert found.seconds == pytest.approx(whole.measured - whole.scaled, abs=1e-9)
        told = {part.op for part in found.parts}
        assert THREAD in told and BETWEEN in told
