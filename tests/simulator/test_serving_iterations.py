"""Closed forms of online passes (NEO-10, E-NEO-05; APEX-13..17) against the replay of their task graphs."""

import json
from dataclasses import replace
from itertools import pairwise
from math import ceil
from random import Random

import pytest
from iteration_times import (
    cpu_attention,
    deferred_iterations,
    deferred_seconds,
    gpu_only_seconds,
    pipelined_seconds,
    prefill_attention,
    simple_seconds,
    transfers,
)
from lowered_serving import lower_serving
from serving import line, priced, random_cost, random_two, serving_plan, work_of
from serving_iteration import Cohort, PromptChunk, ServingIteration, SubBatch
from serving_passes import pass_seconds, trace_passes

from helmsman.scheduler._scheduling import pass_times
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.pass_work import PassWork
from helmsman.schemas.plan import Plan
from helmsman.simulator.export import timeline_json
from helmsman.simulator.replay import Replay, replay

LAYERS = 28
PLAN, SHORT = serving_plan(LAYERS), serving_plan(5)
FLAT = replace(random_cost(Random(0), LAYERS, 0.1), linear=Line((0.0, 64.0), (1.0, 1.0)), ends=line(0.0, 3.0))


def replayed(iteration: ServingIteration, cost: IterationCost, plan: Plan = PLAN) -> Replay:
    return replay(lower_serving(plan, iteration), priced(cost, plan), plan.hardware)


def hidden(cost: IterationCost, iteration: ServingIteration, chance: Random) -> IterationCost:
    """A host so fast that NEO's inequalities hold (NEO-15), by more or less."""
    first, second = map(work_of, iteration.batches)
    room = cost.linear(second.tokens) + cost.gpu_attention(first.gpu_kv) + prefill_attention(cost, first)
    needs = [cpu_attention(cost, work) + transfers(cost, work) for work in (first, second)]
    part = min(1.0, cost.linear(first.tokens) / needs[1], room / max(needs[0], 1e-9)) * chance.uniform(0.3, 1.0)
    return cost.scaled(cpu_attention=part, link=part)


def halves(cost: IterationCost, iteration: ServingIteration) -> float:
    """L (max(l0, tr1 + ca1) + max(l1 + ga0, tr0 + ca0)) and the ends: as if each half waited for both of its sides."""
    first, second = map(work_of, iteration.batches)
    one = max(cost.linear(first.tokens), transfers(cost, second) + cpu_attention(cost, second))
    attention = cost.gpu_attention(first.gpu_kv) + prefill_attention(cost, first)
    other = max(cost.linear(second.tokens) + attention, transfers(cost, first) + cpu_attention(cost, first))
    return cost.layers * (one + other) + cost.ends(iteration.outputs)


def two_sub_batches(seed: int, link: float) -> None:
    chance = Random(seed)
    cost, iteration = random_cost(chance, LAYERS, link), random_two(chance)
    made = replayed(iteration, cost).makespan
    assert pipelined_seconds(cost, *map(work_of, iteration.batches)) == pytest.approx(made, rel=0.03)
    assert halves(cost, iteration) > 0.97 * made
    fast = hidden(cost, iteration, chance)
    made = replayed(iteration, fast).makespan
    assert halves(fast, iteration) == pytest.approx(made, rel=0.02)
    assert pipelined_seconds(fast, *map(work_of, iteration.batches)) == pytest.approx(made, rel=0.02)


@pytest.mark.parametrize("link", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(8))
def test_two_sub_batches_take_what_their_longest_cycle_does(seed: int, link: float) -> None:
    two_sub_batches(seed, link)


@pytest.mark.nightly
@pytest.mark.parametrize("link", [0.0, 0.02, 0.2, 1.0])
def test_many_two_sub_batches(link: float) -> None:
    for seed in range(100, 200):
        two_sub_batches(seed, link)


@pytest.mark.parametrize("layer", [3, LAYERS // 2, LAYERS - 1])
def test_those_who_join_on_the_way_add_the_layers_that_they_have_left(layer: int) -> None:
    chance = Random(layer)
    cost, iteration = random_cost(chance, LAYERS, 0.2), random_two(chance)
    late = tuple(chance.randint(10, 400) for _ in range(8))
    first, fewer = map(work_of, iteration.batches)
    all_of_them = work_of(replace(iteration.batches[1], cpu=(*iteration.batches[1].cpu, *late)))
    made = replayed(replace(iteration, cohorts=(Cohort(layer, late),)), cost).makespan
    free = replace(cost, ends=line(0.0))
    whole, less = (pipelined_seconds(free, first, second) for second in (all_of_them, fewer))
    expected = ((LAYERS - layer) * whole + layer * less) / LAYERS + cost.ends(iteration.outputs + len(late))
    assert made == pytest.approx(expected, rel=0.03)


def random_alone(chance: Random, on_host: bool) -> ServingIteration:
    contexts = tuple(chance.randint(10, 400) for _ in range(chance.randint(1, 12)))
    prompts = tuple(PromptChunk(chance.randint(1, 128), chance.choice([0, 64])) for _ in range(chance.randint(0, 2)))
    members = SubBatch(prompts, cpu=contexts) if on_host else SubBatch(prompts, contexts)
    return ServingIteration(1, "none", (members,))


@pytest.mark.parametrize("seed", range(4))
def test_what_does_not_overlap_adds_up(seed: int) -> None:
    chance = Random(seed)
    cost = random_cost(chance, LAYERS, 0.5)
    for on_host, seconds in ((False, gpu_only_seconds), (True, simple_seconds)):
        iteration = random_alone(chance, on_host)
        assert seconds(cost, work_of(iteration.batches[0])) == pytest.approx(replayed(iteration, cost).makespan)


def test_keys_and_values_leave_beside_the_blocks_that_follow_and_add_only_what_is_longer() -> None:
    members = SubBatch((PromptChunk(20, home="cpu"),), gpu=(50,))
    stays = SubBatch((PromptChunk(20),), gpu=(50,))
    alone = replayed(ServingIteration(1, "none", (stays,)), FLAT).makespan
    first = 0.2 * FLAT.linear(members.tokens)
    for factor in (0.2, 0.9, 1.1, 3.0):
        swap = factor * alone / LAYERS
        made = replayed(ServingIteration(1, "none", (members,)), replace(FLAT, swap_out=line(swap / 20)))
        assert made.makespan == pytest.approx(max(alone, first + LAYERS * swap))
        assert made.busy["d2h"] == pytest.approx(LAYERS * swap)


@pytest.mark.parametrize("factor", [0.3, 2.0])
def test_whole_requests_come_and_go_beside_the_pass(factor: float) -> None:
    members = SubBatch(gpu=(50, 60))
    alone = replayed(ServingIteration(1, "none", (members,)), FLAT).makespan
    swap = factor * alone / LAYERS
    cost = replace(FLAT, swap_out=line(swap / 8), swap_in=line(swap / 8))
    for direction in ("swap_out", "swap_in"):
        iteration = ServingIteration(1, "none", (members,), **{direction: 8})
        expected = gpu_only_seconds(cost, work_of(members, **{direction: 8}))
        assert expected <= replayed(iteration, cost).makespan <= expected + swap + FLAT.linear(2) + FLAT.ends(2)


@pytest.mark.parametrize("factor", [0.3, 2.0])
def test_what_a_chunk_at_the_host_attends_to_comes_back_beside_the_pass(factor: float) -> None:
    members = SubBatch((PromptChunk(20, past=40, home="cpu"),), gpu=(50,))
    alone = replayed(ServingIteration(1, "none", (replace(members, prompts=(PromptChunk(20, 40),)),)), FLAT).makespan
    swap = factor * alone / LAYERS
    cost, iteration = replace(FLAT, swap_in=line(swap / 40)), ServingIteration(1, "none", (members,))
    expected, made = gpu_only_seconds(cost, work_of(members)), replayed(iteration, cost)
    assert expected == pytest.approx(max(alone, LAYERS * swap)) and made.busy["h2d"] == pytest.approx(LAYERS * swap)
    assert expected <= made.makespan <= expected + swap + FLAT.linear(21) + FLAT.ends(2)


@pytest.mark.parametrize("seed", range(6))
def test_a_cohort_costs_a_pass_its_rows_in_one_linear_stage_and_nothing_else(seed: int) -> None:
    chance = Random(seed)
    cost = random_cost(chance, LAYERS, 5.0).scaled(cpu_attention=chance.choice([0.1, 1.0, 100.0]))
    members = SubBatch(gpu=tuple(chance.randint(10, 400) for _ in range(chance.randint(1, 40))))
    cohort = Cohort(chance.randint(1, LAYERS - 1), tuple(chance.randint(10, 400) for _ in range(64)))
    made = replayed(ServingIteration(1, "deferred", (members,), cohorts=(cohort,)), cost)
    assert pass_seconds(made) == pytest.approx(deferred_seconds(cost, work_of(members), [len(cohort.contexts)]))
    assert made.busy["loopback"] == pytest.approx(pass_seconds(made))
    alone = replayed(ServingIteration(1, "deferred", (members,)), cost)
    assert pass_seconds(made) - alone.makespan <= cost.linear(members.tokens + 64) - cost.linear(members.tokens) + 1e-9


def random_cohorts(chance: Random) -> tuple[Cohort, ...]:
    """Three of them on their way."""
    layers = chance.sample(range(1, LAYERS), 3)
    return tuple(
        Cohort(layer, tuple(chance.randint(10, 400) for _ in range(chance.randint(1, 64)))) for layer in layers
    )


@pytest.mark.parametrize("seed", range(4))
def test_several_cohorts_cost_a_pass_a_linear_stage_each(seed: int) -> None:
    """Closed form, core and replay: with a host that is done in time, and one that is far from it."""
    chance = Random(seed)
    cost = random_cost(chance, LAYERS, 5.0).scaled(cpu_attention=chance.choice([0.1, 1.0, 100.0]))
    members, cohorts = SubBatch(gpu=(40,) * 9), random_cohorts(chance)
    made = replayed(ServingIteration(1, "deferred", (members,), cohorts=cohorts), cost)
    joining = [(each.layer, work_of(SubBatch(cpu=each.contexts))) for each in cohorts]
    seconds, _, cpu, _ = pass_times(cost, "deferred", work_of(members), PassWork(), joining)
    assert pass_seconds(made) == pytest.approx(seconds)
    assert seconds == pytest.approx(deferred_seconds(cost, work_of(members), [len(each.contexts) for each in cohorts]))
    assert made.busy["cpu"] == pytest.approx(cpu)


@pytest.mark.parametrize("seed", range(3))
def test_those_of_several_cohorts_add_the_layers_that_they_have_left(seed: int) -> None:
    chance = Random(seed)
    cost, iteration, cohorts = random_cost(chance, LAYERS, 0.2), random_two(chance), random_cohorts(chance)
    first, second = iteration.batches
    everybody = replace(second, cpu=(*second.cpu, *(size for each in cohorts for size in each.contexts)))
    joining = [(each.layer, work_of(SubBatch(cpu=each.contexts))) for each in cohorts]
    made = replayed(replace(iteration, cohorts=cohorts), cost).makespan
    assert pass_times(cost, "pipelined", work_of(first), work_of(everybody), joining)[0] == pytest.approx(
        made, rel=0.03
    )


def advance(cost: IterationCost, members: SubBatch, contexts: tuple[int, ...]) -> int:
    """Passes until a cohort that begins a token begins the next one, where none waits for it (APEX-17)."""
    begun, ready, layer, passes = 0.0, 0.0, 0, 0
    while layer <= cost.layers:
        iteration = ServingIteration(passes, "deferred", (members,), cohorts=(Cohort(layer, contexts),))
        made = replayed(iteration, cost, SHORT)
        start = {task.id: begun + each for task, each in zip(made.graph.tasks, made.start, strict=True)}
        end = {task.id: begun + each for task, each in zip(made.graph.tasks, made.end, strict=True)}
        if layer == 0 or ready <= start[f"{passes}/{layer - 1}.o"]:
            ready, layer = end.get(f"{passes}/{layer}.attention@h2d#1", 0.0), layer + 1
        else:
            made = replayed(replace(iteration, cohorts=()), cost, SHORT)
        begun, passes = begun + pass_seconds(made), passes + 1
    return passes


@pytest.mark.parametrize("slower", [0.3, 0.95, 1.5, 2.5])
def test_a_token_takes_every_block_a_pass_or_as_many_as_the_host_needs_and_one_for_the_ends(slower: float) -> None:
    members, contexts = SubBatch(gpu=(50, 60)), (100,) * 16
    cohort = work_of(SubBatch(cpu=contexts))
    short = replace(FLAT, layers=SHORT.model.layers)
    once = pass_seconds(replayed(ServingIteration(1, "deferred", (members,)), short, SHORT))
    cost = short.scaled(cpu_attention=slower * once / cpu_attention(short, cohort), link=0.0)
    assert deferred_iterations(cost, once, cohort) == cost.layers * ceil(slower) + 1
    assert advance(cost, members, contexts) == deferred_iterations(cost, once, cohort)


def test_passes_follow_each_other_on_a_timeline_while_the_host_goes_on() -> None:
    members, cost = SubBatch(gpu=(50, 60)), FLAT.scaled(link=0.0)
    contexts = (100,) * 16
    graphs = [
        lower_serving(PLAN, ServingIteration(n, "deferred", (members,), cohorts=(Cohort(n, contexts),)))
        for n in range(3)
    ]
    once = pass_seconds(replay(graphs[0], priced(cost, PLAN), PLAN.hardware))
    cost = cost.scaled(cpu_attention=once / cpu_attention(cost, work_of(SubBatch(cpu=contexts))))
    rows = list(trace_passes(graphs, priced(cost, PLAN), PLAN.hardware))
    host = [row for row in rows if row.resource == "cpu"]
    assert [row.task for row in host] == [f"{n}/{n}.attention.host#1" for n in range(3)]
    work = [row for row in rows if row.resource == "loopback"]
    assert all(b.start_s >= a.end_s - 1e-9 for lane in (host, work) for a, b in pairwise(lane))
    assert max(row.end_s for row in work) == pytest.approx(3 * once)
    assert host[0].end_s > once
    shown = json.loads(timeline_json(rows, ("loopback", "cpu"), "three passes"))
    assert shown["otherData"]["iterations_written"] == 3
