"""Times of passes in the native core against their closed forms in Python."""

from random import Random

import pytest
from serving_cases import random_cost

from helmsman.scheduler._scheduling import pass_times
from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.iteration_times import (
    Work,
    deferred_seconds,
    gpu_only_seconds,
    pipelined_seconds,
    simple_seconds,
)

NONE = Work()


def _on_gpu(chance: Random) -> Work:
    rows, prompts = chance.randint(0, 60), chance.choice([0, 0, chance.randint(1, 900)])
    past = chance.choice([0, chance.randint(0, 900)]) if prompts else 0
    return Work(
        tokens=rows + prompts,
        outputs=rows,
        gpu_kv=rows * chance.randint(1, 400),
        pairs=prompts * past + prompts * (prompts + 1) // 2,
        prompt_kv=past + prompts,
        swap_out=chance.choice([0, chance.randint(0, 9000)]),
        swap_in=chance.choice([0, chance.randint(0, 9000)]),
    )


def _with_host(chance: Random, work: Work) -> Work:
    rows = chance.randint(0, 60)
    return _plus(work, Work(rows, rows, cpu_requests=rows, cpu_kv=rows * chance.randint(1, 400)))


def _plus(one: Work, other: Work) -> Work:
    return Work(*(getattr(one, name) + getattr(other, name) for name in Work.__slots__))


def _seconds(cost: IterationCost, kind: str, *work: Work, done_layers: int = 0) -> float:
    first, second, cohort = (*work, NONE, NONE)[:3]
    return pass_times(cost, kind, first, second, cohort, done_layers)[0]


@pytest.mark.parametrize("seed", range(100))
def test_the_core_s_times_are_the_closed_forms(seed: int) -> None:
    chance = Random(seed)
    cost, alone = random_cost(chance), _on_gpu(chance)
    first, second = _with_host(chance, alone), _with_host(chance, NONE)
    assert _seconds(cost, "gpu-only", alone) == pytest.approx(gpu_only_seconds(cost, alone), rel=1e-12)
    assert _seconds(cost, "simple", first) == pytest.approx(simple_seconds(cost, first), rel=1e-12)
    assert _seconds(cost, "pipelined", first, second) == pytest.approx(
        pipelined_seconds(cost, first, second), rel=1e-12
    )
    cohort = _with_host(chance, NONE)
    assert _seconds(cost, "deferred", alone, NONE, cohort) == pytest.approx(
        deferred_seconds(cost, alone, cohort.tokens), rel=1e-12
    )
    yielding = _plus(alone, Work(outputs=cohort.outputs))
    assert _seconds(cost, "deferred", yielding, NONE, Work(tokens=cohort.tokens)) == pytest.approx(
        deferred_seconds(cost, alone, cohort.tokens, cohort.outputs), rel=1e-12
    )


@pytest.mark.parametrize("seed", range(10))
def test_those_who_are_part_of_the_way_add_the_layers_that_they_have_left(seed: int) -> None:
    chance = Random(seed)
    cost = random_cost(chance).scaled(link=0.0)
    first, second, late = (_with_host(chance, NONE) for _ in range(3))
    both, done = _plus(second, late), chance.randint(0, cost.layers)
    ends = cost.ends(first.outputs + both.outputs)
    whole, less = (pipelined_seconds(cost, first, work) for work in (both, second))
    less += ends - cost.ends(first.outputs + second.outputs)
    expected = ((cost.layers - done) * (whole - ends) + done * (less - ends)) / cost.layers + ends
    assert _seconds(cost, "pipelined", first, both, late, done_layers=done) == pytest.approx(expected, rel=1e-9)


def test_each_side_works_as_long_as_its_own_stages_take() -> None:
    chance = Random(1)
    cost, first, second = random_cost(chance), _with_host(chance, _on_gpu(chance)), _with_host(chance, NONE)
    host = cost.cpu_attention(first.cpu_kv) + cost.cpu_attention(second.cpu_kv)
    host += cost.cpu_request * (first.cpu_requests + second.cpu_requests)
    seconds, device, cpu, link = pass_times(cost, "pipelined", first, second, NONE)
    assert cpu == pytest.approx(cost.layers * host)
    assert seconds >= max(device, cpu, link)
    deferred = pass_times(cost, "deferred", first, NONE, second)
    assert deferred[2] == pytest.approx(cost.cpu_attention(second.cpu_kv) + cost.cpu_request * second.cpu_requests)
    assert pass_times(cost, "deferred", first, NONE, Work(tokens=second.tokens))[2] == 0.0
