"""Runs of passes in closed form against the same passes one at a time."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from iteration_times import gpu_only_seconds
from serving_cases import all_gaps, random_case, random_cost

from helmsman.scheduler import _scheduling
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.pass_work import PassWork
from helmsman.scheduler.policies import POLICIES
from helmsman.schemas.requests import make_requests

COUNTS = ("produced", "cpu_tokens", "preemptions", "reused_tokens", "replica", "status", "event", "event_request")
TOTALS = ("swapped_out", "swapped_in", "gpu_blocks", "cpu_blocks", "passes")
TIMES = ("started_s", "first_token_s", "finish_s", "event_s", "busy_s", "gpu_s", "cpu_s", "link_s")
INTEGRALS = ("gpu_kv_s", "cpu_kv_s")


def _compare(seed: int, policy: str | None = None, ranks: int = 0) -> int:
    """The passes that were taken in closed form, in runs. `ranks`: all requests have one of so many priorities."""
    case = random_case(seed, policy)
    if ranks:
        drawn = np.random.default_rng(seed).integers(0, ranks, len(case.requests))
        case = replace(case, requests=replace(case.requests, priority=drawn))
    fast, slow = case.run(), case.run(reference=True)
    for name in (*COUNTS, *TOTALS):
        assert np.array_equal(fast[name], slow[name]), (seed, case.policy, name)
    for name in (*TIMES, *INTEGRALS):
        close = np.allclose(fast[name], slow[name], rtol=1e-9, atol=1e-12, equal_nan=True)
        assert close, (seed, case.policy, name)
    one, other = all_gaps(fast), all_gaps(slow)
    assert len(one) == len(other) and np.allclose(one, other, rtol=1e-9, atol=1e-12), (seed, case.policy)
    assert slow["jumps"].sum() == 0
    return int(fast["jumps"].sum())


def test_equal_to_one_pass_at_a_time() -> None:
    assert sum(_compare(seed, "gpu-only") for seed in range(12)) > 100


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_as_steady_as_it_says(policy: str) -> None:
    for seed in range(4):
        _compare(seed, policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_where_better_priorities_drive_out_worse_ones(policy: str) -> None:
    for seed in range(3):
        _compare(seed, policy, ranks=4)


@pytest.mark.nightly
def test_equal_on_five_hundred_workloads_and_policies() -> None:
    for seed in range(1000, 1500):
        _compare(seed)
        _compare(seed, ranks=4)


@pytest.mark.parametrize("seed", range(5))
def test_a_request_alone_takes_what_its_passes_take_one_by_one(seed: int) -> None:
    random = Random(seed)
    cost, prompt, output = random_cost(random), random.randint(1, 200), random.randint(2, 3000)
    limits = Limits(gpu_tokens=4096, cpu_tokens=0, batch_tokens=4096, sequences=4)
    requests = make_requests(np.array([1.5]), np.array([prompt]), np.array([output]))
    found = _scheduling.simulate(
        requests.columns(), cost, cost, limits, "gpu-only", {"preemption": "recompute"}, check=True
    )
    passes = [PassWork(prompt, 1, pairs=prompt * (prompt + 1) // 2, prompt_kv=prompt)]
    passes += [PassWork(1, 1, gpu_requests=1, gpu_kv=prompt + step) for step in range(1, output)]
    seconds = [gpu_only_seconds(cost, work) for work in passes]
    assert found["jumps"][0] == 1 and found["passes"].sum() == output
    assert found["finish_s"][0] == pytest.approx(1.5 + sum(seconds), rel=1e-12)
    assert all_gaps(found) == pytest.approx(sorted(seconds[1:]), rel=1e-9)
    held = [prompt + step for step in range(output)]
    assert found["gpu_kv_s"][0] == pytest.approx(np.dot(held, seconds), rel=1e-9)
