"""Online passes as task graphs: the same work as other passes have, and who waits for whom."""

from collections import Counter
from dataclasses import replace

import pytest
from lowered_serving import lower_serving
from serving import serving_plan
from serving_iteration import Cohort, PromptChunk, ServingIteration, SubBatch

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.lower import lower
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.cache_use import CacheUse
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import ComputeRule, KvRule, Plan, Residence, Schedule, Select

LAYERS = 3
PLAN = serving_plan(LAYERS)
TWO = ServingIteration(
    7,
    "two-sub-batches",
    (SubBatch((PromptChunk(10, 5, "cpu"), PromptChunk(4)), (5, 6), (7,)), SubBatch(cpu=(8, 9))),
    swap_out=3,
    swap_in=2,
)
DEFERRED = ServingIteration(7, "deferred", (SubBatch(gpu=(5, 6)),), cohorts=(Cohort(1, (9, 9, 9)),))


def named(graph: TaskGraph, name: str) -> Task:
    return next(task for task in graph.tasks if task.id == name)


def before(graph: TaskGraph, name: str) -> set[str]:
    """The ids of what a task waits for, directly."""
    return {graph.tasks[dep].id for dep in named(graph, name).deps}


@pytest.mark.parametrize("on_cpu", [0, 1])
def test_alike_sequences_do_what_a_pass_of_them_does(on_cpu: int) -> None:
    plan = serving_plan(LAYERS, on_cpu)
    decodes = lower_serving(plan, ServingIteration(3, "none", (SubBatch(gpu=(40,) * 4),)))
    plain = lower(plan, Iteration(3, "decode", 4, 1, 40))
    assert [
        task._replace(op=task.op.removesuffix(".decode"), resource=task.resource.partition(":")[0], deps=())
        for task in decodes.tasks
    ] == [task._replace(deps=()) for task in plain.tasks]
    prompts = lower_serving(plan, ServingIteration(3, "none", (SubBatch((PromptChunk(8, 2),) * 4),)))
    plain = lower(plan, Iteration(3, "prefill", 4, 8, 10))
    found = [(task.id.replace(".prompt", ""), task.bytes, task.flops, task.tokens) for task in prompts.tasks]
    assert found == [(t.id, t.bytes, t.flops, t.tokens) for t in plain.tasks]


def test_tasks_are_named_once_and_come_after_what_they_wait_for() -> None:
    for iteration in (TWO, DEFERRED):
        graph = lower_serving(PLAN, iteration)
        assert max(Counter(task.id for task in graph.tasks).values()) == 1
        assert all(dep < number for number, task in enumerate(graph.tasks) for dep in task.deps)


def test_sub_batches_take_turns_on_both_sides() -> None:
    graph = lower_serving(PLAN, TWO)
    host = [task.id for task in graph.tasks if task.resource == "cpu"]
    assert host == [f"7/{layer}.attention.host{batch}" for layer in range(LAYERS) for batch in ("", "#1")]
    order = [task.id for task in graph.tasks if task.resource == "loopback" and task.layer == 1]
    stages = [order.index(name) for name in ("7/1.q", "7/1.q#1", "7/1.attention", "7/1.attention.prompt", "7/1.o")]
    assert stages == sorted(stages)
    assert sum(task.op == "head" for task in graph.tasks) == sum(task.op == "embedding" for task in graph.tasks) == 1
    assert named(graph, "7/head").tokens == TWO.outputs == 7


def test_requests_of_the_hosts_cache_cross_the_link_there_and_back() -> None:
    graph, model = lower_serving(PLAN, TWO), PLAN.model
    there, back = named(graph, "7/1.qkv@d2h#1"), named(graph, "7/1.attention@h2d#1")
    assert (there.bytes, back.bytes) == (
        2 * 4 * (model.dense.q_width + 2 * model.dense.kv_width),
        2 * 4 * model.dense.q_width,
    )
    assert {there.resource, back.resource} == {"d2h:activations", "h2d:activations"}
    assert before(graph, there.id) == {"7/1.append#1"}
    assert named(graph, "7/1.attention.host#1").bytes == 4 * 2 * model.dense.kv_width * (8 + 9)
    assert before(graph, "7/1.o") >= {"7/1.attention@h2d", "7/1.attention", "7/1.attention.prompt"}


def test_caches_move_block_by_block() -> None:
    graph, row = lower_serving(PLAN, TWO), 4 * 2 * PLAN.model.dense.kv_width
    new, out, come = (named(graph, f"7/2.kv.{name}") for name in ("new@d2h", "out@d2h", "in@h2d"))
    assert (new.bytes, out.bytes, come.bytes) == (10 * row, 3 * row, (2 + 5) * row)
    assert before(graph, new.id) == {"7/2.append"}
    assert out.id in before(graph, "7/2.append") & before(graph, "7/2.append#1")
    assert out.id in before(graph, "7/2.attention.host")
    assert come.id in before(graph, "7/2.attention")
    assert {new.resource, out.resource, come.resource} == {"d2h", "h2d"}


def test_nothing_waits_for_a_cohort() -> None:
    graph = lower_serving(PLAN, DEFERRED)
    tokens = {task.id: task.tokens for task in graph.tasks if task.kind == "linear"}
    joined = [name for name, count in tokens.items() if count == 5]
    assert joined == ["7/0.o", "7/0.gate", "7/0.up", "7/0.down", "7/1.q", "7/1.k", "7/1.v"]
    assert {count for name, count in tokens.items() if name not in joined} == {2}
    cohort = [number for number, task in enumerate(graph.tasks) if task.batch == 1]
    assert [graph.tasks[number].id for number in cohort] == [
        "7/1.qkv@d2h#1", "7/1.attention.host#1", "7/1.attention@h2d#1",
    ]  # fmt: skip
    assert not any(set(task.deps) & set(cohort) for task in graph.tasks if task.batch == 0)


@pytest.mark.parametrize(("layer", "embedded", "chosen"), [(0, 5, 2), (1, 2, 2), (LAYERS, 2, 5)])
def test_a_cohort_begins_and_ends_its_token_with_the_others(layer: int, embedded: int, chosen: int) -> None:
    graph = lower_serving(PLAN, replace(DEFERRED, cohorts=(Cohort(layer, (9, 9, 9)),)))
    assert (named(graph, "7/embedding").tokens, named(graph, "7/head").tokens) == (embedded, chosen)
    assert any(task.batch for task in graph.tasks) is (layer < LAYERS)


@pytest.mark.parametrize("members", [(), (8, 9)])
def test_those_who_are_part_of_the_way_join_the_second_sub_batch_for_the_rest(members: tuple[int, ...]) -> None:
    batches = (SubBatch(gpu=(5, 6)), SubBatch(cpu=members))
    graph = lower_serving(PLAN, ServingIteration(7, "two-sub-batches", batches, cohorts=(Cohort(2, (20, 30)),)))
    count, tokens = len(members), {task.id: task.tokens for task in graph.tasks}
    joined = {"7/1.o#1", "7/2.q#1", "7/2.attention.host#1", "7/2.o#1"}
    before = {"7/0.q#1", "7/0.o#1", "7/1.q#1", "7/1.attention.host#1"}
    assert {tokens[name] for name in joined} == {count + 2}
    assert {tokens.get(name, 0) for name in before} == {count}
    assert (tokens["7/embedding"], tokens["7/head"]) == (2 + count, 4 + count)
    assert named(graph, "7/2.attention.host#1").bytes == 4 * 2 * PLAN.model.dense.kv_width * (sum(members) + 50)


def test_prompts_that_go_on_yield_no_token() -> None:
    graph = lower_serving(PLAN, ServingIteration(1, "none", (SubBatch((PromptChunk(8, ends=False),)),)))
    assert not any(task.op in ("final_norm", "head") for task in graph.tasks)


def changed(**changes: object) -> Plan:
    return PLAN.model_copy(update=changes)


HOST_KV = (KvRule(select=Select(), memory="dram", format="f32"),)
AT_HOST = (ComputeRule(select=Select(names="attention"), device="cpu"), *PLAN.compute)


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        (changed(residence=(Residence(select=Select(), memory="dram", format="f32"),)), "residence"),
        (changed(kv=HOST_KV), "kv"),
        (changed(kv=HOST_KV, compute=AT_HOST), "compute"),
        (changed(schedule=Schedule(reshape=True)), "schedule"),
        (changed(schedule=Schedule(cache=CacheUse(keep=0.5))), "schedule"),
    ],
)
def test_plans_that_bring_things_do_not_serve(plan: Plan, field: str) -> None:
    with pytest.raises(BadInputError) as refused:
        lower_serving(plan, ServingIteration(1, "none", (SubBatch(gpu=(5, 6)),)))
    assert refused.value.field == field
    assert refused.value.remedy


def test_a_cache_of_the_host_has_no_other_side() -> None:
    with pytest.raises(BadInputError, match="the host's"):
        lower_serving(serving_plan(LAYERS, LAYERS + 2), ServingIteration(1, "none", (SubBatch(cpu=(9,)),)))
