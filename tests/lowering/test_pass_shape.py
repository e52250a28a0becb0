"""Passes of one shape: sized, they are what lowering makes of each by itself."""

from dataclasses import replace

import pytest
from daily import one_in
from placements import LLAMA, PLANS, passes, random_placement
from plans import make_hardware, make_plan

from helmsman.lowering.lower import lower_runs
from helmsman.lowering.pass_shape import SizedPass, pass_of
from helmsman.lowering.placement import Placed, shaped
from helmsman.planner.cost.model import work_of
from helmsman.schemas.workload import Workload
from helmsman.timing.works import Works, alike

OTHER = Workload(prompt_tokens=77, output_tokens=9, batch=3, context=100)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_sized_passes_are_those_of_lowering(plan: Placed) -> None:
    check(plan)


@pytest.mark.parametrize(
    "seed", one_in(2, [pytest.param(seed, marks=() if seed < 40 else pytest.mark.nightly) for seed in range(100)])
)
def test_sized_passes_of_random_plans_are_those_of_lowering(seed: int) -> None:
    check(random_placement(seed))


def test_plans_that_differ_in_their_workload_and_in_rates_have_one_shape() -> None:
    """Of one host: of several, rates say which is on the way between accelerators."""
    plan = make_plan(LLAMA, 4)
    first, second = shaped(plan), shaped(resized(plan))
    assert first.shape is second.shape and first.workload != second.workload
    faster = plan.model_copy(update={"hardware": make_hardware(bandwidth=9e9)})
    assert plan.hardware.links != faster.hardware.links and shaped(faster).shape is first.shape


def check(plan: Placed) -> None:
    """Ask for the passes of a plan, then for those of other numbers of tokens and sequences."""
    for iteration in passes(plan):
        pass_of(shaped(plan), iteration)
    other = resized(plan)
    for iteration in passes(other):
        known, graph = shaped(other), lower_runs(other, iteration)
        made = pass_of(known, iteration)
        if isinstance(made, SizedPass):
            assert made.graph == graph
        assert compared(alike(made, work_of)) == compared(alike(graph, work_of)), iteration


def resized(plan: Placed) -> Placed:
    work = OTHER.model_copy(update={"batches": plan.workload.batches, "prefix_tokens": plan.workload.prefix_tokens})
    if hasattr(plan, "model_copy"):
        return plan.model_copy(update={"workload": work})
    return replace(plan, workload=work)


def compared(works: Works) -> tuple[object, ...]:
    order = works.order
    by_kind = [work_of(task) for task in works.kinds]
    return (
        by_kind,
        works.counts,
        order.lane_of,
        order.moves,
        order.kind,
        order.dep_counts,
        order.deps,
        order.submissions,
    )
