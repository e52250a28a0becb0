"""Closed forms of iterations on costs that can be added up by hand."""

from dataclasses import replace

import pytest
from iteration_times import (
    contention,
    deferred_iterations,
    deferred_seconds,
    gpu_only_seconds,
    pipelined_seconds,
    simple_seconds,
)

from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.pass_work import PassWork


def _times(factor: float) -> Line:
    return Line((0.0, 1.0), (0.0, factor))


COST = IterationCost(
    layers=2,
    linear=Line((0.0, 1.0, 10.0, 20.0), (0.0, 4.0, 4.0, 8.0)),
    gpu_attention=_times(0.1),
    prefill_compute=_times(0.01),
    prefill_read=_times(0.02),
    cpu_attention=_times(1.0),
    cpu_request=0.5,
    to_host=_times(0.25),
    to_device=_times(0.125),
    swap_out=_times(1.0),
    swap_in=_times(2.0),
    ends=_times(0.5),
)


def test_gpu_only_is_a_sum_and_swaps_go_beside_it() -> None:
    work = PassWork(tokens=15, outputs=4, gpu_kv=30, pairs=100, prompt_kv=40)
    assert gpu_only_seconds(COST, work) == 2 * (6 + 3 + 1) + 2
    assert gpu_only_seconds(COST, replace(work, prompt_kv=100)) == 2 * (6 + 3 + 2) + 2
    assert gpu_only_seconds(COST, replace(work, swap_out=10)) == 22
    assert gpu_only_seconds(COST, replace(work, swap_in=10)) == 40
    assert gpu_only_seconds(COST, PassWork()) == 0


def test_simple_offloading_hides_nothing() -> None:
    work = PassWork(tokens=4, outputs=4, cpu_requests=4, cpu_kv=10)
    assert simple_seconds(COST, work) == 2 * (4 + 1.5 + 12) + 2


_FIRST = PassWork(tokens=15, outputs=4, gpu_kv=30, pairs=100, prompt_kv=40)


@pytest.mark.parametrize(
    ("first", "second", "layer"),
    [
        (_FIRST, PassWork(tokens=2, outputs=2, cpu_requests=2, cpu_kv=4), 6 + (4 + 3 + 1)),
        (_FIRST, PassWork(tokens=2, outputs=2, cpu_requests=2, cpu_kv=10), 4 + 0.75 + 11),
        (
            replace(_FIRST, cpu_requests=2, cpu_kv=10),
            PassWork(tokens=2, outputs=2, cpu_requests=2, cpu_kv=4),
            6 + (0.75 + 11),
        ),
    ],
)
def test_a_pipelined_layer_takes_its_longest_cycle(first: PassWork, second: PassWork, layer: float) -> None:
    assert pipelined_seconds(COST, first, second) == 2 * layer + 2 + 1


def test_what_both_sides_read_of_one_memory_takes_longer() -> None:
    """Of 10 seconds of the first half on the accelerator it reads for 4 + 3; the host's 4, of which it reads for 3, lie
    within them."""
    shared = replace(COST, shared_device=0.5, shared_host=0.25)
    second = PassWork(tokens=2, outputs=2, cpu_requests=2, cpu_kv=3)
    assert pipelined_seconds(COST, _FIRST, second) == 2 * (10 + 4) + 3
    both = 3 * 7 / 10
    assert contention(shared, 7, 10, 3, 4) == pytest.approx((1 + 0.5 * both / 10, 1 + 0.25 * both / 4))
    assert pipelined_seconds(shared, _FIRST, second) == pytest.approx(2 * (10 + 0.5 * both + 4) + 3)


def test_a_long_attention_waits_for_the_other_half_s_reads_alone() -> None:
    """Its own linear stage comes before it, so it is not slowed by that."""
    shared = replace(COST, shared_device=0.5, shared_host=0.25)
    second = PassWork(tokens=2, outputs=2, cpu_requests=2, cpu_kv=30)
    assert pipelined_seconds(shared, _FIRST, second) == pytest.approx(2 * (4 + 0.75 + 31 + 0.25 * 7 * 30 / 31) + 3)


def test_who_works_alone_is_slowed_by_nobody() -> None:
    shared = replace(COST, shared_device=0.5, shared_host=0.25)
    assert (
        contention(shared, 7, 10, 0, 0) == contention(shared, 0, 0, 4, 4) == contention(shared, 7, 10, 0, 4) == (1, 1)
    )
    alone = PassWork(tokens=4, outputs=4, cpu_requests=4, cpu_kv=10)
    assert simple_seconds(shared, alone) == simple_seconds(COST, alone)


def test_each_half_that_the_host_attends_to_begins_with_a_join() -> None:
    """What is busy all the time begins later by it; what waits anyway does not."""
    joined = replace(COST, join_device=1.0, join_host=2.0)
    second = PassWork(tokens=2, outputs=2, cpu_requests=2, cpu_kv=3)
    assert pipelined_seconds(joined, _FIRST, second) == pipelined_seconds(COST, _FIRST, second) + 2 * 1
    away = replace(_FIRST, cpu_requests=2, cpu_kv=40)
    host = 2 * (41 + 4 + 2 * 2) + 3
    assert pipelined_seconds(joined, away, second) == host


def test_requests_cost_the_accelerator_beside_their_bytes() -> None:
    work = PassWork(tokens=15, outputs=4, gpu_requests=4, gpu_kv=30)
    assert gpu_only_seconds(replace(COST, gpu_request=0.25), work) == gpu_only_seconds(COST, work) + 2 * 4 * 0.25


def test_attention_on_the_host_slows_the_pass_beside_it() -> None:
    shared, work = replace(COST, shared_device=0.5, shared_host=0.25), PassWork(tokens=10, outputs=10, gpu_kv=30)
    assert deferred_seconds(shared, work, [10], cohorts=PassWork(cpu_kv=100)) == pytest.approx(
        23 * (1 + 0.5 * 7 / 11.5)
    )


def test_a_pipeline_takes_no_less_than_its_link() -> None:
    first, second = PassWork(tokens=1, outputs=1, swap_out=100), PassWork(tokens=1, outputs=1, cpu_requests=1, cpu_kv=1)
    assert pipelined_seconds(COST, first, second) == 2 * (100 + 0.25)


def test_deferred_requests_join_one_layer_and_take_a_token_in_one_iteration_more_than_layers() -> None:
    work = PassWork(tokens=10, outputs=10, gpu_kv=30)
    assert deferred_seconds(COST, work, []) == gpu_only_seconds(COST, work) == 2 * (4 + 3) + 5
    assert deferred_seconds(COST, work, [10]) == 19 + 4
    assert deferred_seconds(COST, work, [10, 10]) == 19 + 8
    cohort = PassWork(cpu_requests=8, cpu_kv=26)
    assert deferred_iterations(COST, 33.0, cohort) == 3
    assert deferred_iterations(COST, 32.9, cohort) == 5
