"""Cohorts: a token of requests on the host that no pass waits for (APEX-13..19) takes L + 1 passes (E-APEX-05)."""

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from iteration_times import deferred_iterations, deferred_seconds
from together import together

from helmsman.scheduler import _scheduling
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.pass_work import PassWork
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.requests import make_requests
from helmsman.schemas.served_table import FINISHED

LAYERS, ON_HOST = 5, 3
_NONE, _FLAT = Line((0.0,), (0.0,)), Line((0.0,), (1.0,))
COST = IterationCost(
    LAYERS,
    linear=_FLAT,
    gpu_attention=_NONE,
    prefill_compute=_NONE,
    prefill_read=_NONE,
    cpu_attention=Line((0.0,), (2.0,)),  # more than a linear stage hides: two sub-batches are no choice
    cpu_request=0.25,
    to_host=_NONE,
    to_device=_NONE,
    swap_out=_NONE,
    swap_in=_NONE,
    ends=Line((1.0, 2.0), (0.0, 0.5)),  # who decodes on the accelerator yields for nothing, those of the cohort do not
)
LIMITS = Limits(gpu_tokens=128, cpu_tokens=960, batch_tokens=512, sequences=8)


@pytest.mark.parametrize("slower", [1.0, 2.5])
def test_a_token_takes_as_many_passes_as_layers_and_one(slower: float) -> None:
    """One request fills the accelerator's cache; the host may be slower than the policy believes."""
    requests = make_requests(np.zeros(1 + ON_HOST), np.array([100, *[17] * ON_HOST]), np.array([29, *[2] * ON_HOST]))
    cost, options = COST.scaled(cpu_attention=slower), checked_options("apex", {"threshold": "0", "saturation": "512"})
    found = _scheduling.simulate(requests.columns(), cost, COST, LIMITS, "apex", options, check=True)
    assert (found["status"] == FINISHED).all()
    assert found["cpu_tokens"].tolist() == [0, *[1] * ON_HOST]
    once = deferred_seconds(cost, PassWork(tokens=1, outputs=1), [ON_HOST])
    passes = deferred_iterations(cost, once, PassWork(cpu_requests=ON_HOST, cpu_kv=18 * ON_HOST))
    assert passes == (LAYERS if slower == 1.0 else 2 * LAYERS) + 1
    last = deferred_seconds(cost, PassWork(tokens=1, outputs=1), [ON_HOST], ON_HOST)
    assert last == once + 0.5 * ON_HOST
    on_host = found["itl_on_cpu"] == 1
    assert found["itl_weight"][on_host].tolist() == [ON_HOST]
    assert found["itl_first_s"][on_host] == pytest.approx((passes - 1) * once + last)
    assert found["cpu_s"][0] == pytest.approx(LAYERS * slower * (2.0 + 0.25 * ON_HOST))


SLOTS, STEPS = 12, 600
POOLED = replace(COST, layers=SLOTS, ends=_NONE)
"""A pass takes as many seconds as layers, whoever joins; it is believed to hide five tasks of a request each."""


@dataclass
class _Task:
    """A cohort as the oracle has it: who is in it, layers done, seconds that the host still needs, and since when."""

    members: list[int]
    number: int
    layers: int = 0
    left: float = 0.0
    begun: bool = False
    since: int = 0


def _host(members: int) -> float:
    return 2.0 + 0.25 * members


def _key(order: str, task: _Task) -> tuple[float, ...]:
    first = {"last": -task.layers, "first": task.layers, "arrival": task.since}[order]
    return not task.begun, first, task.layers, task.number


def _ended(arrival: list[float], output: list[int], slower: float, cohorts: int, order: str) -> list[float]:
    """When requests on the host end, pass by pass and task by task."""
    ends, made, queue, pool, begun = [0.0] * len(arrival), [1] * len(arrival), list[int](), list[_Task](), 0
    for number in range(STEPS):
        now, end = number * SLOTS, float((number + 1) * SLOTS)
        fresh, room = list[int](), SLOTS - sum(_host(len(task.members)) for task in pool)
        for request in queue if len(pool) < cohorts else []:
            busy = any(request in task.members for task in pool)
            if not busy and _host(len(fresh) + 1) <= room:
                fresh.append(request)
        if fresh:
            pool.append(_Task(fresh, begun := begun + 1))
        done = [task for task in pool if not task.left and task.layers == SLOTS]
        for task in pool:
            if not task.left and task not in done:
                task.left, task.since = slower * _host(len(task.members)), number
        rest = float(SLOTS)
        for task in sorted((task for task in pool if task.left), key=lambda task: _key(order, task)):
            spent = min(rest, task.left)
            rest, task.left, task.begun = rest - spent, task.left - spent, task.begun or spent > 0
            if task.left < 1e-9:
                task.left, task.begun, task.layers = 0.0, False, task.layers + 1
        for request in (request for task in done for request in task.members):
            made[request] += 1
            if made[request] == output[request]:
                ends[request] = end
                queue.remove(request)
        pool = [task for task in pool if task not in done]
        queue += [request for request, at in enumerate(arrival) if now - SLOTS < at <= now]
    return ends


@together("seed", range(40))
def test_the_host_works_through_its_tasks_in_order(seed: int) -> None:
    """Requests come one after the other beside one that fills the accelerator's cache; the host may be slower than is
    believed, so that tasks wait for each other."""
    chance = Random(seed)
    count, slower = chance.randint(2, 8), chance.choice([1.0, 1.0, 1.7, 3.0])
    arrival = sorted(chance.uniform(1.0, 40.0 * SLOTS) for _ in range(count))
    output = [chance.randint(2, 4) for _ in range(count)]
    cohorts, order = chance.choice([1, 2, 8]), chance.choice(["last", "first", "arrival"])
    requests = make_requests(np.array([0.0, *arrival]), np.array([1000, *[640] * count]), np.array([STEPS, *output]))
    limits = Limits(gpu_tokens=1600, cpu_tokens=160_000, batch_tokens=10_000, sequences=16)
    given = {"threshold": "0", "saturation": "100000", "cohorts": str(cohorts), "order": order}
    cost, options = POOLED.scaled(cpu_attention=slower), checked_options("apex", given)
    found = _scheduling.simulate(requests.columns(), cost, POOLED, limits, "apex", options, check=True)
    assert found["cpu_tokens"][1:].tolist() == [each - 1 for each in output]
    expected = _ended(arrival, output, slower, cohorts, order)
    assert found["finish_s"][1:].tolist() == pytest.approx(expected, rel=1e-9)


def _waits(layers: int, stages: int) -> float:
    """Rounds that a token of a cohort waits in each layer, by the times of simulated tokens, its way to the next stages
    and its last linear stage apart. Rounds take as many seconds as there are layers."""
    count = 12
    requests = make_requests(np.zeros(1 + count), np.array([1040, *[200] * count]), np.array([170, *[3] * count]))
    cost = replace(COST, layers=layers, stages=stages, ends=_NONE, cpu_request=0.0)
    limits = Limits(gpu_tokens=1216, cpu_tokens=8192, batch_tokens=4096, sequences=16)
    options = checked_options("apex", {"threshold": "0", "saturation": "4096"})
    found = _scheduling.simulate(requests.columns(), cost, cost, limits, "apex", options, check=True)
    assert (found["status"] == FINISHED).all() and found["cpu_tokens"][1:].tolist() == [2] * count
    tokens = np.diff(np.stack([found["first_token_s"], found["finish_s"]]), axis=0)[0, 1:] / 2
    assert tokens == pytest.approx(layers * np.ceil(layers / stages + 1))
    return float(tokens[0] / layers - 1) / layers


def test_eighty_layers_on_eight_accelerators_wait_an_eighth_as_long() -> None:
    """The host waits for 10 layers instead of 80: 87.5 % less, where the paper prints 75 % (E-APEX-08)."""
    assert 1 - _waits(80, 8) / _waits(80, 1) == pytest.approx(0.875)


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_uneven_stages_end_a_token_with_the_round_that_has_its_last_slot(stages: int) -> None:
    cohort, cost = PassWork(cpu_requests=1, cpu_kv=18), replace(COST, layers=32, stages=stages)
    assert deferred_iterations(cost, 32.0, cohort) == -(-32 // stages) + 1
    assert _waits(32, stages) == pytest.approx(-(-32 // stages) / 32)
