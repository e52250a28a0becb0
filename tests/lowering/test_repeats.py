"""Turns that repeat each other are made once: the tasks, works, terms and bounds are those of all turns made one by
one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from random import Random

import pytest
from layer_machines import LAYER, OPT_LAYER
from op_plans import make_op_split_plan
from paged import make_paged_plan
from plans import make_plan
from random_cases import random_split

from helmsman.lowering.graph import TaskGraph
from helmsman.lowering.lower import lower, lower_runs, lower_turns
from helmsman.lowering.paging import passes_of
from helmsman.lowering.placement import Placed, batches_together
from helmsman.planner.cost.model import CostModel, work_of
from helmsman.planner.prediction.between_terms import between_terms
from helmsman.planner.prediction.bound import lower_bound
from helmsman.planner.prediction.predict import mean_step
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Residence, Schedule, Select
from helmsman.schemas.workload import Workload
from helmsman.timing.works import Works, alike, apart

LLAMA, OPT = (model.model_copy(update={"layers": 9}) for model in (LAYER, OPT_LAYER))
PLANS = {
    "layers": make_plan(LLAMA, 4),
    "one device": make_plan(LLAMA),
    "operations": make_op_split_plan(LLAMA, 2, 9),
    "heads in 4-bit groups": make_op_split_plan(OPT, 3, 9, {"scores": 2}, cache_q4=True, weights_q4=True),
    "on the fly": make_op_split_plan(OPT, 0, 11, pinning="pin-on-transfer"),
    "pages": make_paged_plan(LLAMA, workload=Workload(prompt_tokens=400, output_tokens=64, context=500)),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_tasks_are_those_of_turns_made_one_by_one(plan: Placed) -> None:
    for iteration in passes(plan):
        assert lower(plan, iteration) == one_by_one(plan, iteration)


@pytest.mark.parametrize("seed", range(100))
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
        assert works.overlap == any(index - 1 not in task.deps for index, task in enumerate(graph.tasks) if index)
        counted = Counter(works.kind)
        assert works.counts == tuple(counted[kind] for kind in range(len(works.kinds)))


def one_by_one(plan: Placed, iteration: Iteration) -> TaskGraph:
    return TaskGraph(iteration, tuple(chain.from_iterable(lower_turns(plan, iteration))))


def passes(plan: Placed) -> Iterator[Iteration]:
    """The first and the last pass over the prompt and a decode step."""
    prompt = passes_of(plan).prompt
    yield from {prompt[0].index: prompt[0], prompt[-1].index: prompt[-1]}.values()
    yield mean_step(plan.workload, batches_together(plan))


def random_placement(seed: int) -> Placed:
    """A random layer split in which random weights, caches, known tokens and operations of some blocks are elsewhere,
    under a random schedule."""
    rng = Random(seed)
    split = random_split(seed)
    placement = split.placement(rng.choice(split.candidates()))
    model = placement.model.model_copy(update={"layers": 9})
    memories = [memory.name for memory in placement.hardware.memories]
    start = rng.randrange(9)
    some = LayerRange(start=start, stop=rng.randint(start + 1, 9))
    weights = Residence(
        select=Select(names=rng.choice(("*", "up.*", "q.*")), layers=some),
        memory=rng.choice(memories),
        format=placement.residence[0].format,
    )
    cache, known = (
        KvRule(select=select, memory=rng.choice(memories), format=placement.kv[0].format)
        for select in (Select(layers=some), Select(names="prefix"))
    )
    usual = placement.compute[-1].device
    place = ComputeRule(
        select=Select(names=rng.choice(("attention", "attention", "up")), layers=rng.choice((None, some))),
        device=rng.choice([device.name for device in placement.hardware.devices if device.name != usual] or [usual]),
    )
    work, together = placement.workload, rng.random() < 0.5
    prefix = rng.randrange(work.prompt_tokens) if rng.random() < 0.5 else 0
    return replace(
        placement,
        model=model,
        workload=work.model_copy(update={"batches": rng.choice((1, 1, 2, 3)), "prefix_tokens": prefix}),
        residence=(weights, *placement.residence),
        kv=(known, *((cache,) if together else ()), *placement.kv),
        compute=(place, *placement.compute),
        schedule=Schedule(
            overlap=rng.choice(("none", "next-layer", "next-layer")),
            prefetch=rng.choice((1, 2)),
            order=rng.choice(("token-major", "layer-major", "layer-major")),
            barrier=rng.random() < 0.4,
            stage=rng.choice(("block", "half")),
        ),
    )


def content(works: Works) -> tuple[object, ...]:
    return works.kinds, works.counts, works.kind.tolist(), works.dep_counts.tolist(), works.deps.tolist()


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
