"""Times of passes in the native core against their closed forms in Python."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from random import Random

import pytest
from iteration_times import cpu_attention, deferred_seconds, gpu_only_seconds, pipelined_seconds, simple_seconds
from serving_cases import random_cost
from together import together

from helmsman.scheduler._scheduling import pass_times
from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.pass_work import PassWork

NONE = PassWork()


def _on_gpu(chance: Random) -> PassWork:
    rows, prompts = chance.randint(0, 60), chance.choice([0, 0, chance.randint(1, 900)])
    past = chance.choice([0, chance.randint(0, 900)]) if prompts else 0
    return PassWork(
        tokens=rows + prompts,
        outputs=rows,
        gpu_requests=rows,
        gpu_kv=rows * chance.randint(1, 400),
        pairs=prompts * past + prompts * (prompts + 1) // 2,
        prompt_kv=past + prompts,
        swap_out=chance.choice([0, chance.randint(0, 9000)]),
        swap_in=chance.choice([0, chance.randint(0, 9000)]),
    )


def _with_host(chance: Random, work: PassWork) -> PassWork:
    rows = chance.randint(0, 60)
    return _plus(work, PassWork(rows, rows, cpu_requests=rows, cpu_kv=rows * chance.randint(1, 400)))


def _plus(one: PassWork, other: PassWork) -> PassWork:
    return PassWork(*(getattr(one, name) + getattr(other, name) for name in PassWork.__slots__))


def _seconds(
    cost: IterationCost,
    kind: str,
    first: PassWork,
    second: PassWork = NONE,
    joining: Sequence[tuple[int, PassWork]] = (),
) -> float:
    return pass_times(cost, kind, first, second, joining)[0]


def _sum(works: Iterable[PassWork]) -> PassWork:
    return reduce(_plus, works, NONE)


@together("seed", range(100))
def test_the_core_s_times_are_the_closed_forms(seed: int) -> None:
    chance = Random(seed)
    cost, alone = random_cost(chance), _on_gpu(chance)
    if chance.random() < 0.5:
        cost = replace(cost, shared_device=chance.uniform(0.0, 2.0), shared_host=chance.uniform(0.0, 2.0))
        cost = replace(cost, join_device=chance.uniform(0.0, 1e-4), join_host=chance.uniform(0.0, 1e-4))
    first, second = _with_host(chance, alone), _with_host(chance, NONE)
    assert _seconds(cost, "gpu-only", alone) == pytest.approx(gpu_only_seconds(cost, alone), rel=1e-12)
    assert _seconds(cost, "simple", first) == pytest.approx(simple_seconds(cost, first), rel=1e-12)
    assert _seconds(cost, "pipelined", first, second) == pytest.approx(
        pipelined_seconds(cost, first, second), rel=1e-12
    )
    cohort = _with_host(chance, NONE)
    assert _seconds(cost, "deferred", alone, NONE, [(0, cohort)]) == pytest.approx(
        deferred_seconds(cost, alone, [cohort.tokens], cohorts=cohort), rel=1e-12
    )
    yielding = _plus(alone, PassWork(outputs=cohort.outputs))
    assert _seconds(cost, "deferred", yielding, NONE, [(cost.layers, PassWork(tokens=cohort.tokens))]) == pytest.approx(
        deferred_seconds(cost, alone, [cohort.tokens], cohort.outputs), rel=1e-12
    )


def test_states_are_moved_and_copied_before_and_behind_a_pass() -> None:
    chance = Random(5)
    cost = replace(random_cost(chance), state_copy=0.25, state_out=0.5, state_in=0.125)
    work = _on_gpu(chance)
    states = replace(work, states_copied=3, states_out=2, states_in=1)
    before, after = (pass_times(cost, "gpu-only", each, NONE, ()) for each in (work, states))
    assert after == pytest.approx((before[0] + 1.875, before[1] + 0.75, before[2], before[3] + 1.125))


@together("seed", range(20))
def test_each_cohort_joins_the_linear_stage_of_its_layer(seed: int) -> None:
    """Those at one layer join one stage together; the host attends to each cohort apart."""
    chance = Random(seed)
    cost, alone = random_cost(chance), _on_gpu(chance)
    cohorts = [(chance.randint(0, 3), _with_host(chance, NONE)) for _ in range(chance.randint(0, 6))]
    stages = [sum(work.tokens for at, work in cohorts if at == layer) for layer in range(4)]
    seconds, _, cpu, _ = pass_times(cost, "deferred", alone, NONE, cohorts)
    assert seconds == pytest.approx(deferred_seconds(cost, alone, stages), rel=1e-12)
    assert cpu == pytest.approx(sum(cpu_attention(cost, work) for _, work in cohorts if work.tokens), rel=1e-12)
    mixed = chance.sample(cohorts, len(cohorts))
    assert pass_times(cost, "deferred", alone, NONE, mixed)[0] == pytest.approx(seconds, rel=1e-15)


@together("seed", range(20))
def test_those_who_are_part_of_the_way_add_the_layers_that_they_have_left(seed: int) -> None:
    """Layer by layer what the pass would take if it had all layers as this one."""
    chance = Random(seed)
    cost = random_cost(chance).scaled(link=0.0)
    first, second = _with_host(chance, NONE), _with_host(chance, NONE)
    late = [(chance.randint(0, cost.layers), _with_host(chance, NONE)) for _ in range(chance.randint(0, 4))]
    expected = cost.ends(first.outputs + second.outputs + sum(work.outputs for _, work in late))
    for layer in range(cost.layers):
        there = _plus(second, _sum(work for begin, work in late if begin <= layer))
        whole = pipelined_seconds(cost, first, there) - cost.ends(first.outputs + there.outputs)
        expected += whole / cost.layers
    both = _plus(second, _sum(work for _, work in late))
    assert _seconds(cost, "pipelined", first, both, late) == pytest.approx(expected, rel=1e-9)


def test_each_side_works_as_long_as_its_own_stages_take() -> None:
    chance = Random(1)
    cost, first, second = random_cost(chance), _with_host(chance, _on_gpu(chance)), _with_host(chance, NONE)
    host = cost.cpu_attention(first.cpu_kv) + cost.cpu_attention(second.cpu_kv)
    host += cost.cpu_request * (first.cpu_requests + second.cpu_requests)
    seconds, device, cpu, link = pass_times(cost, "pipelined", first, second, [])
    assert cpu == pytest.approx(cost.layers * host)
    assert seconds >= max(device, cpu, link)
    deferred = pass_times(cost, "deferred", first, NONE, [(0, second)])
    assert deferred[2] == pytest.approx(cost.cpu_attention(second.cpu_kv) + cost.cpu_request * second.cpu_requests)
    assert pass_times(cost, "deferred", first, NONE, [(cost.layers, PassWork(tokens=second.tokens))])[2] == 0.0
