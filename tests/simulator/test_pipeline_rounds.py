"""Costs of rounds of a pipeline of accelerators (APEX-39) against the replay of micro-batches in turn."""

from collections.abc import Iterable
from dataclasses import fields
from random import Random

import pytest
from iteration_times import (
    cpu_attention,
    deferred_iterations,
    deferred_seconds,
    gpu_only_seconds,
    pipelined_seconds,
    transfers,
)
from rounds import in_turn, staged
from served_plans import layer_split
from serving import work_of
from serving_iteration import Cohort, Overlap, PromptChunk, ServingIteration, SubBatch

from helmsman.hwdb.compose import compose
from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel
from helmsman.planner.serving.iteration_cost import replica_cost
from helmsman.planner.serving.pipeline_parallel import stage_layers
from helmsman.planner.serving.replica import ReplicaOptions
from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.pass_work import PassWork
from helmsman.simulator.replay import Replay, replay

EIGHT = compose("8x H100 SXM 80GB", "2x Intel Xeon Platinum 8462Y+", 2 * 10**12, None, peer=360e9)
ROUNDS = 4


class Pipeline:
    """Some layers of Llama-3.1-70B on as many accelerators."""

    def __init__(self, layers: int, stages: int) -> None:
        whole = layer_split("Llama-3.1-70B", EIGHT, layers=layers)
        self.plan, self.layers = staged(whole, stages), stage_layers(whole.model, stages)
        self.costs = CostModel(self.plan.hardware)
        self.cost: IterationCost = replica_cost(whole, ReplicaOptions(pipeline_parallel=stages)).cost

    def replayed(self, passes: Iterable[ServingIteration]) -> Replay:
        graph = in_turn(self.plan, self.layers, passes, len(self.layers))
        return replay(graph, self.median, self.plan.hardware)

    def median(self, task: Task) -> float:
        return self.costs.price(task).mid

    def round_seconds(self, overlap: Overlap, micro: list[tuple[SubBatch, ...]]) -> float:
        """Of a full pipeline: what so many rounds take longer than half of them."""
        numbers = range(ROUNDS * len(micro))
        passes = [ServingIteration(n, overlap, micro[n % len(micro)]) for n in numbers]
        half = len(passes) // 2
        return (self.replayed(passes).makespan - self.replayed(passes[:half]).makespan) / (ROUNDS / 2)


def together(batches: Iterable[SubBatch]) -> PassWork:
    """The work of a round."""
    each = [work_of(batch) for batch in batches]
    return PassWork(**{field.name: sum(getattr(work, field.name) for work in each) for field in fields(PassWork)})


def contexts(chance: Random, least: int, most: int) -> tuple[int, ...]:
    return tuple(chance.randint(500, 3000) for _ in range(chance.randint(least, most)))


@pytest.mark.parametrize(
    ("layers", "stages", "prompts"),
    [
        (8, 2, True),
        (14, 3, False),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in ((8, 2, False), (14, 3, True))),
        *(pytest.param(40, 8, prompts, marks=pytest.mark.nightly) for prompts in (False, True)),
    ],
)
def test_a_round_takes_what_its_micro_batches_do_one_behind_the_other(layers: int, stages: int, prompts: bool) -> None:
    pipeline, chance = Pipeline(layers, stages), Random(stages)
    chunks = [(PromptChunk(chance.randint(200, 300), chance.choice([0, 1000])),) if prompts else () for _ in range(9)]
    micro = [(SubBatch(chunks[number], contexts(chance, 6, 10)),) for number in range(stages)]
    work = together(batch for [batch] in micro)
    assert gpu_only_seconds(pipeline.cost, work) == pytest.approx(pipeline.round_seconds("none", micro), rel=0.025)


@pytest.mark.parametrize(
    ("layers", "stages", "on_host"),
    [
        (8, 2, 30),
        (14, 3, 2),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in ((8, 2, 2), (14, 3, 30))),
        *(pytest.param(40, 8, on_host, marks=pytest.mark.nightly) for on_host in (2, 30)),
    ],
)
def test_sub_batches_share_the_host_with_those_of_other_stages(layers: int, stages: int, on_host: int) -> None:
    """Hidden, or the host is what a round waits for; where it is, it waits for stages at their ends, too."""
    pipeline, chance = Pipeline(layers, stages), Random(stages)
    second = [SubBatch(cpu=contexts(chance, on_host - 1, on_host)) for _ in range(stages)]
    micro = [(SubBatch((), contexts(chance, 6, 10)), each) for each in second]
    halves = together(first for first, _ in micro), together(second)
    seconds = pipelined_seconds(pipeline.cost, *halves)
    assert seconds == pytest.approx(pipeline.round_seconds("two-sub-batches", micro), rel=0.05)


def test_the_last_micro_batch_follows_the_others_into_an_empty_pipeline() -> None:
    pipeline, chance = Pipeline(24, 2), Random(1)
    micro = [(SubBatch((), contexts(chance, 8, 8)),) for _ in range(2)]
    once = pipeline.replayed(ServingIteration(n, "none", batch) for n, batch in enumerate(micro)).makespan
    seconds = gpu_only_seconds(pipeline.cost, together(batch for [batch] in micro))
    assert once == pytest.approx(seconds * (2 + 2 - 1) / 2, rel=0.05)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_cohort_goes_on_with_every_slot_and_waits_for_the_layers_of_one_stage(stages: int) -> None:
    """It joins each micro-batch of a full pipeline one layer further: attention of nine tenths of a slot, so of L/N
    layers, is always there in time, and its token takes L + N slots."""
    pipeline, layers, warm = Pipeline(16, stages), 16, 2 * stages
    members = SubBatch((), (1000,) * 8)
    once = gpu_only_seconds(pipeline.cost, together([members] * stages))
    count = next(n for n in range(1, 10_000) if _host(pipeline.cost, n + 1) > 0.9 * once / stages)
    cohorts = [(Cohort(layer, (1000,) * count),) for layer in range(layers + 1)]
    joining = [()] * warm + cohorts + [()] * warm
    made = pipeline.replayed(
        ServingIteration(n, "deferred", (members,), cohorts=those) for n, those in enumerate(joining)
    )
    start, end = (
        {task.id: at for task, at in zip(made.graph.tasks, times, strict=True)} for times in (made.start, made.end)
    )
    came = {name.partition(".attention@")[0]: at for name, at in end.items() if ".attention@" in name and "#1" in name}
    for layer in range(layers):
        pass_ = warm + layer
        assert came[f"{pass_}/{layer}"] <= start[f"{pass_ + 1}/{layer}.o"], layer
    seconds = deferred_seconds(pipeline.cost, together([members] * stages), [count] * stages)
    token = end[f"{warm + layers}/head"] - start[f"{warm}/embedding"]
    assert token == pytest.approx((layers + stages) * seconds / stages, rel=0.04)
    cohort = together([SubBatch(cpu=(1000,) * count)])
    assert deferred_iterations(pipeline.cost, seconds, cohort) == -(-layers // stages) + 1


def _host(cost: IterationCost, count: int) -> float:
    work = together([SubBatch(cpu=(1000,) * count)])
    return cpu_attention(cost, work) + transfers(cost, work)
