"""Sweeps of runs that differ in one thing."""

import numpy as np
import pytest
from serving_oracle import serve, simple_cost
from together import together

from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import UsageError
from helmsman.schemas.requests import make_requests
from helmsman.schemas.serving import ServingReport
from helmsman.simulator.serving.report import report
from helmsman.simulator.serving.sweep import Sweep, parse_sweep, sweep


def test_sweeps_are_read() -> None:
    assert parse_sweep("rate=0.5:2:0.5") == Sweep("rate", (0.5, 1.0, 1.5, 2.0))
    assert parse_sweep("output=50:800:250").values == (50.0, 300.0, 550.0, 800.0)
    assert parse_sweep("cpu-bandwidth=0.5,1,2,4").values == (0.5, 1.0, 2.0, 4.0)


@together(
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
