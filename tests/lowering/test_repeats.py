"""Turns that repeat each other are made once: the tasks, works, terms and bounds are those of all turns made one by
one."""

from array import array
from collections import Counter
from itertools import chain, pairwise

import pytest
from daily import one_in
from placements import PLANS, passes, random_placement

from helmsman.hwdb.percentiles import ENDS
from helmsman.lowering.graph import TaskGraph
from helmsman.lowering.lower import lower, lower_runs, lower_turns
from helmsman.lowering.placement import Placed
from helmsman.planner.cost.model import CostModel, work_of
from helmsman.planner.prediction.between_terms import between_terms
from helmsman.planner.prediction.bound import lower_bound
from helmsman.planner.prediction.predict import mean_step
from helmsman.scheduler.iteration import Iteration
from helmsman.timing._clock import sequence_seconds
from helmsman.timing.clock import Clock
from helmsman.timing.makespan import works_makespan
from helmsman.timing.works import Works, alike, apart


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_tasks_are_those_of_turns_made_one_by_one(plan: Placed) -> None:
    for iteration in passes(plan):
        assert lower(plan, iteration) == one_by_one(plan, iteration)


@pytest.mark.parametrize(
    "seed", one_in(2, [pytest.param(seed, marks=() if seed < 40 else pytest.mark.nightly) for seed in range(100)])
)
def test_tasks_of_random_plans_are_those_of_turns_made_one_by_one(seed: int) -> None:
    """Under every schedule, with weights of random blocks elsewhere."""
    plan = random_placement(seed)
    for iteration in passes(plan):
        assert lower(plan, iteration) == one_by_one(plan, iteration)


def test_equal_blocks_are_made_a_few_times() -> None:
    plan = PLANS["one device"]
    runs = lower_runs(plan, mean_step(plan.workload)).runs
    assert sum(run.times for run in runs) > len(runs)
    assert sum(len(run.tasks) for run in runs) < len(lower(plan, mean_step(plan.workload)).tasks) / 2


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_works_terms_and_bounds_are_those_of_all_tasks(plan: Placed) -> None:
    costs = CostModel(plan.hardware)
    for iteration in passes(plan):
        repeating, whole = lower_runs(plan, iteration), one_by_one(plan, iteration)
        works, expected = alike(repeating, work_of), alike(whole, work_of)
        assert content(works) == content(expected)
        assert list(between_terms(works, costs)) == list(between_terms(apart(whole), costs))
        assert lower_bound(repeating, plan.hardware) == pytest.approx(lower_bound(whole, plan.hardware), rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_pieces_and_waits_are_those_counted_task_by_task(seed: int) -> None:
    plan = random_placement(seed)
    for iteration in passes(plan):
        graph = one_by_one(plan, iteration)
        works = alike(lower_runs(plan, iteration), work_of)
        assert works.submissions == submissions(graph)
        pairs = enumerate(pairwise(graph.tasks))
        assert works.order.overlap == any(
            task not in after.deps and before.resource != after.resource for task, (before, after) in pairs
        )
        counted = Counter(works.order.kind)
        assert works.counts == tuple(counted[kind] for kind in range(len(works.kinds)))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_tasks_that_cannot_overlap_take_the_seconds_that_the_clock_says(plan: Placed) -> None:
    costs = CostModel(plan.hardware)
    for iteration in passes(plan):
        works = alike(lower_runs(plan, iteration), work_of)
        assert not works.order.overlap or plan not in (PLANS["layers"], PLANS["one device"])
        for end in ENDS:
            times = [getattr(costs.price(task), end) for task in works.kinds]
            shared = costs.pools_at(end), costs.slowed(end), costs.between(end)
            clock = Clock(*shared)
            for task, alone in zip(works.kinds, times, strict=True):
                clock.own_work(task, alone)
            clock.feed(works.order.kind, works.order.dep_counts, works.order.deps)
            clock.run()
            assert works_makespan(works, times, *shared) == clock.makespan
            assert works.order.overlap or clock.loop.overlap == 0.0


@pytest.mark.parametrize(
    "waits", [(0, 0, 0, 0), (1, 2, -1, 0), (1, 0, -1, 1, 1, 0), (1, 0, -1, 1, 0), (1, 0, -1, 1, 0, 2), (2, 0, -1, 0)]
)
def test_a_sequence_waits_for_tasks_and_lanes_that_there_are(waits: tuple[int, ...]) -> None:
    kinds = array("i", [0, 1])
    assert sequence_seconds(kinds, [2.0, 3.0], array("q", (1, 0, -1, 1, 0, 1)), [0.5, 1.0], [0, 1, 4, 0]) == 9.0
    with pytest.raises(ValueError, match="no such task or lane"):
        sequence_seconds(kinds, [2.0, 3.0], array("q", waits), [0.5, 1.0], [0.0] * 4)
    with pytest.raises(ValueError, match="no such work"):
        sequence_seconds(kinds, [2.0], array("q"), [], [])
    with pytest.raises(ValueError, match="different lengths"):
        sequence_seconds(kinds, [2.0, 3.0], array("q"), [0.5], [])


def one_by_one(plan: Placed, iteration: Iteration) -> TaskGraph:
    return TaskGraph(iteration, tuple(chain.from_iterable(lower_turns(plan, iteration))))


def content(works: Works) -> tuple[object, ...]:
    return (
        works.kinds,
        works.counts,
        works.order.kind.tolist(),
        works.order.dep_counts.tolist(),
        works.order.deps.tolist(),
    )


def submissions(graph: TaskGraph) -> int:
    """Pieces in which lanes are given a pass, counted task by task."""
    tasks, count, last = graph.tasks, 0, dict[str, int]()
    pairs = ((dep, place) for place, task in enumerate(tasks) for dep in task.deps)
    across = [(dep, place) for dep, place in pairs if tasks[dep].resource != tasks[place].resource]
    awaited, waiting = {dep for dep, _ in across}, {place for _, place in across}
    for place, task in enumerate(tasks):
        before = last.get(task.resource)
        count += task.kind == "transfer" or before is None or place in waiting or before in awaited
        last[task.resource] = place
    return count
