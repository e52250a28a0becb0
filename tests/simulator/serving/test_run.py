"""Served by the native core: as the oracle serves, one iteration at a time, and as queueing theory says."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from daily import one_in
from serving_oracle import INFO, flat, serve, simple_cost

from helmsman.scheduler.cost import Line
from helmsman.scheduler.limits import Limits
from helmsman.schemas.requests import Requests
from helmsman.schemas.served_table import ServedTable
from helmsman.simulator.serving.report import report
from helmsman.simulator.serving.requests.request_source import Variation, open_source
from helmsman.simulator.serving.requests_in_system import present
from helmsman.simulator.serving.run import Setup
from helmsman.simulator.serving.run import serve as serve_fast

COST = simple_cost(0.01, 1e-4, 1e-6, layers=3)
GPU_ONLY = {"preemption": "recompute"}
TIMES = ("started_s", "first_token_s", "finish_s")
COUNTS = ("produced", "status", "preemptions")


def random_question(seed: int) -> tuple[Requests, Limits]:
    """A hundred requests of three priorities, some of which leave, and a cache that may be crowded."""
    random = np.random.default_rng(seed)
    lengths = f"input={random.integers(20, 400)},output={random.integers(2, 90)},lengths=exponential"
    found = open_source(f"synthetic:n=100,{lengths}").requests(seed, Variation(float(random.choice([0.5, 5.0, 30.0]))))
    leaving = np.where(random.random(100) < 0.2, found.arrival_s + 3.0 * random.random(100), np.inf)
    limits = Limits(
        gpu_tokens=int(random.choice([1000, 2000, 6000])),
        cpu_tokens=0,
        batch_tokens=512,
        sequences=int(random.choice([4, 32])),
        chunk=int(random.choice([0, 128, 512])),
    )
    return replace(found, priority=random.integers(0, 3, 100), cancel_s=leaving), limits


def check_same(found: ServedTable, expected: ServedTable) -> None:
    for name in TIMES:
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, nan_ok=True), name
    for name in COUNTS:
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name


@pytest.mark.parametrize("seed", one_in(2, range(6)))
def test_every_request_is_served_as_one_iteration_at_a_time(seed: int) -> None:
    requests, limits = random_question(seed)
    expected = serve(requests, COST, limits)
    found = serve_fast(requests, Setup(COST, COST, limits, "gpu-only", GPU_ONLY), INFO).served
    check_same(found, expected)
    ours, theirs = report(found).latency.itl, report(expected).latency.itl
    assert (ours.count, ours.p50, ours.p99, ours.mean) == pytest.approx(
        (theirs.count, theirs.p50, theirs.p99, theirs.mean), rel=1e-9
    )


@pytest.mark.nightly
def test_many_workloads_are_served_as_one_iteration_at_a_time() -> None:
    for seed in range(100, 400):
        requests, limits = random_question(seed)
        expected = serve(requests, COST, limits)
        check_same(serve_fast(requests, Setup(COST, COST, limits, "gpu-only", GPU_ONLY), INFO).served, expected)


def queue(lengths: str, load: float, count: int) -> ServedTable:
    """One server of a request at a time: prompts of 1000 tokens on average take a second, and one token is all."""
    none = flat(0.0)
    cost = replace(COST, layers=1, linear=Line((0.0, 1e6), (0.0, 1e3)), gpu_attention=none, ends=none)
    limits = Limits(gpu_tokens=10**7, cpu_tokens=0, batch_tokens=10**6, sequences=1)
    requests = open_source(f"synthetic:n={count},input=1000,output=1,lengths={lengths}").requests(5, Variation(load))
    ones = replace(requests, output_tokens=np.ones(count, np.int64))
    return serve_fast(ones, Setup(cost, cost, limits, "gpu-only", GPU_ONLY), INFO).served


@pytest.mark.parametrize(
    ("lengths", "waiting"),
    [("fixed", lambda load: load / (2 * (1 - load))), ("exponential", lambda load: load / (1 - load))],
    ids=["M/D/1", "M/M/1"],
)
def test_one_server_waits_as_long_as_queueing_theory_says(lengths: str, waiting: object) -> None:
    for load in (0.3, 0.6):
        served = queue(lengths, load, 200_000)
        waited = served.started_s - served.arrival_s
        assert waited.mean() == pytest.approx(waiting(load), rel=0.02)
        assert np.mean(served.finish_s - served.started_s) == pytest.approx(1.0, rel=0.01)


def test_little_s_law_is_exact() -> None:
    served = queue("exponential", 0.7, 20_000)
    found, there = report(served), present(served)
    rate = len(served) / found.duration
    assert there.mean() == pytest.approx(rate * found.latency.e2e.mean, rel=1e-12)


def test_replicas_share_the_work_and_the_caches() -> None:
    requests, limits = random_question(9)
    two = Setup(COST, COST, limits, "gpu-only", GPU_ONLY, replicas=2)
    outcome = serve_fast(requests, two, INFO)
    assert set(outcome.served.replica.tolist()) <= {-1, 0, 1}
    activity = outcome.activity
    assert 0.0 < activity.busy.gpu <= 1.0 and activity.busy.cpu == 0.0
    assert 0.0 < activity.gpu_cache.mean <= activity.gpu_cache.max <= 1.0
    assert activity.cpu_cache.tokens == 0 and outcome.occupancy.cpu_share is None
    assert outcome.occupancy.gpu_share.max() <= 1.0
    assert (np.diff(outcome.occupancy.at_s) > 0.0).all()


def test_a_replica_of_its_own_for_every_request_leaves_nobody_waiting() -> None:
    requests, limits = random_question(2)
    alone = replace(requests, cancel_s=np.full(100, np.inf), prompt_tokens=np.minimum(requests.prompt_tokens, 400))
    served = serve_fast(alone, Setup(COST, COST, limits, "gpu-only", GPU_ONLY, replicas=100), INFO).served
    assert served.started_s.tolist() == alone.arrival_s.tolist()


def test_costs_that_the_policy_is_wrong_about_are_paid() -> None:
    requests, limits = random_question(2)
    slower = Setup(COST.scaled(linear=2.0, gpu_attention=2.0), COST, limits, "gpu-only", GPU_ONLY)
    together = replace(requests, arrival_s=np.zeros(100), cancel_s=np.full(100, np.inf))
    once = serve_fast(together, replace(slower, cost=COST), INFO).served
    twice = serve_fast(together, slower, INFO).served
    assert twice.finish_s == pytest.approx(2.0 * once.finish_s, rel=1e-9, nan_ok=True)


def test_another_process_serves_alike() -> None:
    program = (
        "import sys; sys.path[:0] = ['tests/support', 'tests/simulator/serving']\n"
        "from test_run import *\n"
        "requests, limits = random_question(3)\n"
        "found = serve_fast(requests, Setup(COST, COST, limits, 'gpu-only', GPU_ONLY), INFO)\n"
        "print(report(found.served, None, found.activity).to_json())"
    )
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    requests, limits = random_question(3)
    here = serve_fast(requests, Setup(COST, COST, limits, "gpu-only", GPU_ONLY), INFO)
    assert there == report(here.served, None, here.activity).to_json().encode() + b"\n"
