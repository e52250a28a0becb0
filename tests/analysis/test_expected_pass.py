from dataclasses import replace
from typing import Any

import pytest
from lowered import graphs, question
from plain_clock import makespan

from helmsman.analysis.expected_pass import ExpectedPass, expect
from helmsman.analysis.simulated_pass import SimulatedPass, from_spans
from helmsman.analysis.steps import DecodeSteps
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.planner.cost.estimate import Estimate
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.predict import predict_phase
from helmsman.scheduler.iteration import decode, prefill
from helmsman.schemas.plan import ComputeRule, KvRule, Plan, Schedule, Select
from helmsman.simulator.replay import replay, spans

CUDA = (ComputeRule(select=Select(names="embedding"), device="cpu"), ComputeRule(select=Select(), device="cuda"))
HOST_KV = (KvRule(select=Select(), memory="dram", format="f16"),)
VARIANTS: dict[str, dict[str, Any]] = {
    "split": {},
    "streamed weights": {"compute": CUDA, "kv": (KvRule(select=Select(), memory="vram", format="f16"),)},
    "streamed KV": {"compute": CUDA, "kv": HOST_KV},
    "overlapping": {"compute": CUDA, "kv": HOST_KV, "schedule": Schedule(overlap="next-layer", prefetch=3)},
}


@pytest.fixture(params=VARIANTS)
def variant(plan: Plan, request: pytest.FixtureRequest) -> Plan:
    return plan.model_copy(update=VARIANTS[request.param])


@pytest.mark.parametrize("batch", [1, 3])
def test_steps_equal_the_lowering_of_each(variant: Plan, batch: int) -> None:
    workload = variant.workload.model_copy(update={"batch": batch})
    steps = DecodeSteps(variant, workload, CostModel(variant.hardware))
    for step in (1, 2, 3, 11, 400):
        assert steps.graph(step) == lower(variant, decode(workload, step))


def test_expectations_equal_the_replay_of_each_pass(variant: Plan) -> None:
    """The fast way against the slow one."""
    costs = CostModel(variant.hardware)
    found = expect(variant, variant.workload, costs, range(13))
    for i, one in found.items():
        graph = lower(variant, decode(variant.workload, i) if i else prefill(variant.workload))
        assert one.graph == graph and one.estimates == {task.id: costs.price(task) for task in graph.tasks}
        slow = from_spans(spans(replay(graph, lambda task: costs.price(task).mid, variant.hardware)), 0.0, 0.0)
        assert one.simulated.tasks == pytest.approx(slow.tasks, rel=1e-9)
        assert one.simulated.extent == pytest.approx(slow.extent, rel=1e-9)
        assert one.simulated.idle == pytest.approx(slow.idle, abs=1e-15)

        def other(task: Task, estimate: Estimate) -> float:
            return estimate.mid * (1 + len(task.op))

        schedule = makespan(graph, lambda task: other(task, costs.price(task)))
        assert one.schedule(other) == pytest.approx(schedule, rel=1e-9)


def test_what_is_expected_is_what_the_plan_predicts() -> None:
    """Where host and link want more of a memory than it has, too."""
    asked = question()
    graph = graphs(asked, asked.layout(asked.finalists[0][0]))[1]
    price = asked.costs.price
    estimates = {task.id: price(task) for task in graph.tasks}
    expected = ExpectedPass(graph, asked.costs, estimates, SimulatedPass({}, 0.0, 0.0), asked.costs.between())
    predicted = predict_phase(graph, asked.costs).seconds.mid
    assert expected.schedule(lambda _, estimate: estimate.mid) == pytest.approx(predicted, rel=1e-9)
    assert makespan(graph, lambda task: price(task).mid) < 0.99 * predicted


@pytest.mark.parametrize(
    ("name", "replayed"), [("split", 2), ("streamed weights", 2), ("streamed KV", 13), ("overlapping", 13)]
)
def test_passes_whose_tasks_run_in_turn_are_replayed_once(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, name: str, replayed: int
) -> None:
    """And a schedule with parallel lanes every time: the order there depends on the seconds."""
    lowered: list[int] = []
    runs: list[int] = []

    def counted_lower(*arguments: Any) -> Any:
        lowered.append(1)
        return lower(*arguments)

    def counted_replay(*arguments: Any) -> Any:
        runs.append(1)
        return replay(*arguments)

    monkeypatch.setattr("helmsman.analysis.expected_pass.lower", counted_lower)
    monkeypatch.setattr("helmsman.analysis.steps.lower", counted_lower)
    monkeypatch.setattr("helmsman.analysis.simulated_pass.replay", counted_replay)
    varied = plan.model_copy(update=VARIANTS[name])
    expect(varied, varied.workload, CostModel(plan.hardware), range(13))
    assert (len(lowered), len(runs)) == (3, replayed)


def test_given_spans_are_used_where_they_are(plan: Plan) -> None:
    costs = CostModel(plan.hardware)
    graph = lower(plan, decode(plan.workload, 2))
    rows = spans(replay(graph, lambda task: 1.0, plan.hardware))
    late = [replace(row, start_s=row.start_s + 5.0, end_s=row.end_s + 5.0) for row in rows]
    found = expect(plan, plan.workload, costs, [1, 2, 3], late)
    assert found[2].simulated.extent == len(rows) and found[2].simulated.idle == 0.0
    assert found[1].simulated.extent < 1.0 and found[3].simulated.extent < 1.0


def test_progress_sees_every_pass(plan: Plan) -> None:
    seen: list[int] = []

    def progress(passes: Any) -> Any:
        for one in passes:
            seen.append(one)
            yield one

    expect(plan, plan.workload, CostModel(plan.hardware), [0, 1, 4], (), progress)
    assert seen == [0, 1, 4]
