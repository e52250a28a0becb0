"""What iterations of a served plan cost, by tables and closed forms, against the replay of lowered passes."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest
from daily import one_in
from iteration_times import deferred_seconds, gpu_only_seconds, pipelined_seconds, simple_seconds
from lowered_serving import lower_serving
from plans import sharing_hardware
from serving import work_of
from serving_iteration import Cohort, PromptChunk, ServingIteration, SubBatch
from serving_passes import pass_seconds

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import Task
from helmsman.lowering.placement import Placement
from helmsman.planner.cost.model import CostModel
from helmsman.planner.serving.iteration_cost import replica_cost
from helmsman.scheduler.cost import IterationCost
from helmsman.schemas.plan import ComputeRule, KvRule, Residence, Select
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay

PLAN = Placement(
    load_model("Llama-3.1-8B"),
    load_hardware("a10g-g5.4xlarge", None),
    Workload(prompt_tokens=8, output_tokens=8, context=16),
    (Residence(select=Select(), memory="vram", format="f16"),),
    (KvRule(select=Select(), memory="vram", format="f16"),),
    (ComputeRule(select=Select(), device="cuda"),),
)
COSTS = CostModel(PLAN.hardware)


def median(task: Task) -> float:
    return COSTS.price(task).mid


@cache
def cost() -> IterationCost:
    return replica_cost(PLAN).cost


def contexts(chance: Random, least: int, most: int) -> tuple[int, ...]:
    return tuple(chance.randint(100, 3000) for _ in range(chance.randint(least, most)))


def prompts(chance: Random) -> tuple[PromptChunk, ...]:
    return tuple(PromptChunk(chance.randint(16, 1500), home=chance.choice(["gpu", "cpu"])) for _ in range(2))


def passes(chance: Random) -> list[tuple[ServingIteration, float]]:
    """One pass of each kind, and what closed forms say of it."""
    some, here = chance.choice([(), prompts(chance)]), contexts(chance, 1, 30)
    alone, away = SubBatch(some, here), SubBatch(some, cpu=here)
    first, second = SubBatch(some, here, contexts(chance, 0, 5)), SubBatch(cpu=contexts(chance, 1, 30))
    cohort = Cohort(chance.randint(1, PLAN.model.layers - 1), contexts(chance, 8, 60))
    both = map(work_of, (first, second))
    return [
        (ServingIteration(1, "none", (alone,)), gpu_only_seconds(cost(), work_of(alone))),
        (ServingIteration(1, "none", (away,)), simple_seconds(cost(), work_of(away))),
        (ServingIteration(1, "two-sub-batches", (first, second)), pipelined_seconds(cost(), *both)),
        (
            ServingIteration(1, "deferred", (alone,), cohorts=(cohort,)),
            deferred_seconds(cost(), work_of(alone), [len(cohort.contexts)]),
        ),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_iterations_cost_what_their_tasks_do_together(seed: int) -> None:
    for iteration, seconds in passes(Random(seed)):
        made = replay(lower_serving(PLAN, iteration), median, PLAN.hardware)
        assert seconds == pytest.approx(pass_seconds(made), rel=0.02), iteration.overlap


def one_memory(joint: float) -> Placement:
    """A plan for an accelerator that computes from a part of the host's memory: 10 GB/s each, together `joint`."""
    plan = replace(PLAN, model=load_model("Qwen3-0.6B"), hardware=sharing_hardware(joint))
    return replace(plan, compute=(ComputeRule(select=Select(), device="loopback"),))


@pytest.mark.parametrize("joint", [1.2e10, pytest.param(1.6e10, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("own", [(), (900,) * 3])
@pytest.mark.parametrize("requests", one_in(2, [2, 6, 12, 30]))
def test_two_devices_on_one_memory_delay_each_other(requests: int, own: tuple[int, ...], joint: float) -> None:
    """Where the host's attention is a part of the accelerator's time, as long, and longer: up to half as long again."""
    plan = one_memory(joint)
    cost, costs = replica_cost(plan).cost, CostModel(plan.hardware)
    first, second = SubBatch(gpu=(100,) * 4, cpu=own), SubBatch(cpu=(1500,) * requests)
    made = replay(
        lower_serving(plan, ServingIteration(1, "two-sub-batches", (first, second))),
        lambda task: costs.price(task).mid,
        plan.hardware,
    )
    works = work_of(first), work_of(second)
    seconds = pipelined_seconds(cost, *works)
    assert seconds == pytest.approx(pass_seconds(made), rel=0.03)
    assert seconds > 1.01 * pipelined_seconds(replace(cost, shared_device=0.0, shared_host=0.0), *works)


def test_where_memory_has_what_both_read_nobody_waits() -> None:
    apart = replica_cost(one_memory(2.5e10)).cost
    assert (apart.shared_device, apart.shared_host) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_blocks_take_all_but_a_twentieth_of_a_pass_of_two_sub_batches() -> None:
    iteration = ServingIteration(1, "two-sub-batches", (SubBatch(gpu=(1000,) * 20), SubBatch(cpu=(1000,) * 4)))
    graph = lower_serving(PLAN, iteration)
    ends = sum(median(task) for task in graph.tasks if task.layer is None)
    assert ends < 0.05 * replay(graph, median, PLAN.hardware).makespan
