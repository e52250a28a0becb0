"""Quantiles over weighted runs equal those of the listed gaps."""

import numpy as np
import pytest

from helmsman.schemas.served_table import Gaps
from helmsman.simulator.serving.gap_quantiles import Ends, quantiles, ranked, runs_of

ASKED = (0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0)


def random_gaps(seed: int, count: int, kind: str) -> Gaps:
    random = np.random.default_rng(seed)
    first = random.choice([0.01, 0.02, 0.5], count) if kind == "ties" else random.lognormal(-3.0, 1.0, count)
    step = (
        np.zeros(count) if kind in ("ties", "level") else random.normal(0.0, 1e-4, count) * random.integers(0, 2, count)
    )
    steps = random.integers(1, 60, count)
    first = first + np.maximum(0.0, -step * steps)
    weight = random.integers(1, 9, count)
    return Gaps(np.array([0, count]), first, step, steps, weight, random.random(count) < 0.3)


def listed(gaps: Gaps, on_cpu: bool | None = None) -> np.ndarray:
    values = [
        np.repeat(first + step * np.arange(steps), weight)
        for first, step, steps, weight, cpu in zip(
            gaps.first_s, gaps.step_s, gaps.steps, gaps.weight, gaps.on_cpu, strict=True
        )
        if on_cpu is None or cpu == on_cpu
    ]
    return np.concatenate(values)


@pytest.mark.parametrize("kind", ["ties", "level", "rising"])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_quantiles_equal_those_of_the_listed_gaps(kind: str, count: int) -> None:
    for seed in range(12):
        gaps = random_gaps(seed, count, kind)
        values, runs = listed(gaps), runs_of(gaps)
        assert runs.count() == len(values)
        assert runs.mean() == pytest.approx(values.mean(), rel=1e-12)
        assert list(quantiles(runs, ASKED)) == pytest.approx(np.quantile(values, ASKED), rel=1e-12)


def test_ranks_are_the_sorted_values() -> None:
    gaps = random_gaps(5, 4, "rising")
    values = np.sort(listed(gaps))
    runs = runs_of(gaps)
    assert [ranked(runs, Ends(runs), rank) for rank in range(0, len(values), 9)] == pytest.approx(
        values[::9], rel=1e-14
    )


def test_gaps_of_requests_on_the_host_are_told_apart() -> None:
    gaps = random_gaps(2, 40, "rising")
    for on_cpu in (True, False):
        found = list(quantiles(runs_of(gaps, on_cpu), ASKED))
        assert found == pytest.approx(np.quantile(listed(gaps, on_cpu), ASKED), rel=1e-12)


def test_a_billion_gaps_are_not_listed() -> None:
    gaps = Gaps(
        np.array([0, 1]), np.array([1.0]), np.array([1e-9]), np.array([10**9]), np.array([3]), np.array([False])
    )
    assert list(quantiles(runs_of(gaps), (0.5,))) == pytest.approx([1.5], rel=1e-9)
