"""Sweeps and the maximum rate under an SLO, against curves that are known."""

from random import Random
from statistics import fmean

import numpy as np
import pytest
from scipy import stats
from serving_oracle import serve, simple_cost

from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.requests import make_requests
from helmsman.schemas.serving import ServingReport
from helmsman.simulator.serving.capacity import PRECISION, find_capacity, half_width
from helmsman.simulator.serving.report import report
from helmsman.simulator.serving.sweep import Sweep, parse_sweep, sweep


@pytest.mark.parametrize("true", [1e-4, 0.9, 1.0, 3.7, 5000.0])
def test_bisection_finds_where_the_slo_is_lost(true: float) -> None:
    found = find_capacity(lambda rate, seed: rate <= true, 1.0, (0,))
    assert found.seeds[0].keeps <= true < found.seeds[0].misses
    assert found.seeds[0].misses / found.seeds[0].keeps <= 1.0 + PRECISION
    assert (found.low, found.high, found.rate) == (None, None, found.seeds[0].keeps)
    assert found.runs < 40


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    random = Random(4)
    hits = 0
    for _ in range(200):
        limits = [random.gauss(10.0, 1.0) for _ in range(5)]
        found = find_capacity(lambda rate, seed, limits=limits: rate <= limits[seed], 8.0, range(5))
        hits += found.low <= 10.0 * (1 - PRECISION / 2) <= found.high
    assert 0.90 <= hits / 200 <= 0.99


@pytest.mark.parametrize("count", [2, 3, 5, 12, 31])
def test_the_interval_is_student_s(count: int) -> None:
    values = list(np.random.default_rng(count).random(count))
    _, high = stats.t.interval(0.95, count - 1, loc=fmean(values), scale=stats.sem(values))
    assert half_width(values) == pytest.approx(high - fmean(values), rel=1e-3)


def test_beyond_the_table_the_interval_is_nearly_normal() -> None:
    values = list(np.random.default_rng(1).random(60))
    _, high = stats.t.interval(0.95, 59, loc=fmean(values), scale=stats.sem(values))
    assert half_width(values) == pytest.approx(high - fmean(values), rel=0.03)


def test_limits_that_nothing_or_everything_keeps_are_said_to_be() -> None:
    with pytest.raises(InfeasibleError, match="no rate keeps"):
        find_capacity(lambda rate, seed: False, 1.0, (0,))
    with pytest.raises(InfeasibleError, match="no rate misses"):
        find_capacity(lambda rate, seed: True, 1.0, (0,))


def test_sweeps_are_read() -> None:
    assert parse_sweep("rate=0.5:2:0.5") == Sweep("rate", (0.5, 1.0, 1.5, 2.0))
    assert parse_sweep("output=50:800:250").values == (50.0, 300.0, 550.0, 800.0)
    assert parse_sweep("cpu-bandwidth=0.5,1,2,4").values == (0.5, 1.0, 2.0, 4.0)


@pytest.mark.parametrize(
    "text", ["rate", "rate=", "speed=1", "rate=0", "rate=1:2", "rate=2:1:1", "rate=1:2:0", "rate=a", "rate=nan",
             "rate=1:1e9:1", "output=1.5", "rate=1:inf:1"]
)  # fmt: skip
def test_what_is_no_sweep_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_sweep(text)
    assert caught.value.field == "sweep"


def test_every_policy_is_run_and_compared() -> None:
    limits = Limits(gpu_tokens=10_000, cpu_tokens=0, batch_tokens=512, sequences=8)

    def run(value: float, policy: str) -> ServingReport:
        requests = make_requests(np.zeros(4), np.full(4, 10), np.full(4, int(value)))
        cost = simple_cost(0.01 if policy == "gpu-only" else 0.005)
        return report(serve(requests, cost, limits))

    found = sweep(Sweep("output", (5.0, 10.0)), ("fast",), run, "gpu-only")
    assert [(point.value, point.policy) for point in found.points] == [
        (5.0, "fast"), (5.0, "gpu-only"), (10.0, "fast"), (10.0, "gpu-only")
    ]  # fmt: skip
    assert [point.relative for point in found.points] == pytest.approx([2.0, 1.0, 2.0, 1.0])
    assert sweep(Sweep("output", (5.0,)), ("fast",), run).points[0].relative is None
