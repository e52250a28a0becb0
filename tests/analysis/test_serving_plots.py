"""Pictures of serving runs: every run has its line, every panel its unit, and nothing stands on anything else."""

from dataclasses import replace

import numpy as np
import pytest
from apart import check_apart
from serving_oracle import INFO, simple_cost

from helmsman.analysis.plots.picture import image
from helmsman.analysis.plots.serving_curves import describe, draw_sweep
from helmsman.analysis.plots.serving_run import draw_latencies, draw_run
from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.limits import Limits
from helmsman.schemas.requests import Requests, make_requests
from helmsman.schemas.served_table import ServedTable
from helmsman.schemas.serving import ServingReport, ServingSweep, Slo
from helmsman.simulator.serving.report import report
from helmsman.simulator.serving.requests.request_source import Variation, open_source
from helmsman.simulator.serving.run import Occupancy, Setup
from helmsman.simulator.serving.run import serve as run_requests
from helmsman.simulator.serving.sweep import Over, Sweep, sweep
from helmsman.simulator.serving.text import report_text, sweep_text

LIMITS = Limits(gpu_tokens=3000, cpu_tokens=0, batch_tokens=512, sequences=16)


def serve(requests: Requests, cost: IterationCost) -> ServedTable:
    return run_requests(requests, Setup(cost, cost, LIMITS, "gpu-only", {"preemption": "recompute"}), INFO).served


def served(rate: float = 8.0, policy: str = "gpu-only") -> ServedTable:
    requests = open_source("synthetic:n=60,input=200,output=30").requests(0, Variation(rate))
    found = serve(requests, simple_cost(0.02 if policy == "gpu-only" else 0.01, 1e-5))
    return replace(found, info=found.info.model_copy(update={"policy": policy}))


def swept(over: Over, relative_to: str | None) -> ServingSweep:
    def run(value: float, policy: str) -> ServingReport:
        return report(served(value if over == "rate" else 8.0, policy))

    return sweep(Sweep(over, (2.0, 4.0, 8.0)), ("neo", "apex"), run, relative_to)


@pytest.mark.parametrize(("over", "relative"), [("rate", None), ("output", "gpu-only"), ("input", None)])
def test_a_sweep_has_a_line_for_every_policy(over: Over, relative: str | None) -> None:
    found = swept(over, relative)
    figure = draw_sweep(found, describe(found.points[0].report))
    policies = {"neo", "apex"} | ({relative} if relative else set())
    for axes in figure.axes:
        lines = [line for line in axes.lines if line.get_label() in policies]
        shown = policies - {relative} if "relative" in axes.get_ylabel() else policies
        assert {line.get_label() for line in lines} == shown
        assert all(list(line.get_xdata()) == [2.0, 4.0, 8.0] for line in lines)
    check_apart(figure)
    assert ("relative" in figure.axes[0].get_ylabel()) == (relative is not None)


def test_a_line_shows_what_the_sweep_found() -> None:
    found = swept("output", "gpu-only")
    line = next(line for line in draw_sweep(found, "sixty requests").axes[0].lines if line.get_label() == "neo")
    assert list(line.get_ydata()) == [point.relative for point in found.points if point.policy == "neo"]
    assert f"{found.points[0].relative:.3f}" in sweep_text(found)


def test_distributions_end_at_all_requests() -> None:
    runs = [("gpu-only", served()), ("neo", served(policy="neo"))]
    figure = draw_latencies(runs, "sixty requests")
    for axes in figure.axes:
        assert [line.get_label() for line in axes.lines] == ["gpu-only", "neo"]
        for line in axes.lines:
            assert line.get_ydata()[-1] == 100.0 and np.all(np.diff(line.get_xdata()) >= 0.0)
    check_apart(figure)
    assert image(figure, "svg") == image(draw_latencies(runs, "sixty requests"), "svg")


def test_one_run_shows_requests_and_caches_over_time() -> None:
    found = served(20.0)
    found = replace(found, cpu_tokens=np.where(np.arange(60) % 2, 5, 0))
    at = np.linspace(0.0, 9.0, 50)
    figure = draw_run(("neo", found), Occupancy(at, at / 9.0, None), "neo", "sixty requests")
    lines = [[line.get_label() for line in axes.lines] for axes in figure.axes]
    assert lines == [["on the accelerator", "partly on the host"]] * 3 + [["there", "running"], ["accelerator"]]
    there, running = figure.axes[3].lines
    assert max(there.get_ydata()) > max(running.get_ydata()) == 15
    check_apart(figure)


def test_limits_are_drawn_where_they_are() -> None:
    """Also beyond what any request took; a metric without a limit has none, and whole requests are drawn if limited."""
    at = np.linspace(0.0, 9.0, 50)
    occupancy, slo = Occupancy(at, at / 9.0, None), Slo(ttft=50.0, per_token=0.01, e2e=0.5, share=0.9)
    figure = draw_run(("neo", served()), occupancy, "neo", "sixty", slo)
    limits = [axes.lines[-1].get_xdata()[0] if "limit" in axes.get_xlabel() else None for axes in figure.axes]
    assert limits == [50.0, None, 0.01, 0.5, None, None]
    assert all(axes.get_xlim()[1] > limit for axes, limit in zip(figure.axes, limits, strict=True) if limit)
    assert len(figure.axes[1].lines) == 1
    check_apart(figure)
    assert len(draw_run(("neo", served()), occupancy, "neo", "sixty", Slo(tpot=0.1)).axes) == len(figure.axes) - 1


def test_long_runs_are_drawn_in_few_points() -> None:
    count = 5000
    requests = make_requests(np.arange(count) * 0.1, np.full(count, 8), np.ones(count, np.int64))
    figure = draw_latencies([("gpu-only", serve(requests, simple_cost()))], "many requests")
    assert len(figure.axes[0].lines[0].get_xdata()) == 4000


def test_what_is_missing_is_a_dash() -> None:
    ones = make_requests(np.zeros(3), np.full(3, 10), np.ones(3, np.int64))
    lines = report_text(report(serve(ones, simple_cost()))).splitlines()
    assert next(line for line in lines if line.startswith("TPOT")).split() == ["TPOT", *"-----"]
    assert any("all at once" in line for line in lines)
