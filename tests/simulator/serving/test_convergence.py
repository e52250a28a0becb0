"""Runs become longer and seeds more until an answer stands, within limits; intervals are Student's."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from helmsman.schemas.errors import InfeasibleError
from helmsman.simulator.serving.bisection import NothingMissesError
from helmsman.simulator.serving.confidence import half_width, interval
from helmsman.simulator.serving.convergence import (
    FIRST_SEEDS,
    INTERVAL_SHARE,
    LENGTH_SHARE,
    MOST_SEEDS,
    MOST_WORK,
    Effort,
    SeedAnswers,
    converge,
    over_seeds,
)


@dataclass(frozen=True)
class Answer:
    keeps: float


@dataclass
class Finder:
    """Answers of `answer(seed, requests)`, each of which takes as many runs as the bisection near a known one."""

    answer: Callable[[int, int], float]
    work: int = 0
    longest: int = 0

    def find(self, seed: int, requests: int, near: float | None) -> Answer:
        self.work += 5 * requests
        self.longest = max(self.longest, requests)
        return Answer(self.answer(seed, requests))

    def converge(
        self, requests: int, longest: int = 10**9, seeds: int = MOST_SEEDS, step: float = 0.0, least: float = 0.0
    ) -> SeedAnswers:
        return converge(self.find, Effort(range(seeds), requests, least, longest, step, lambda: self.work))


def test_an_overload_that_shows_late_makes_runs_longer() -> None:
    finder = Finder(lambda seed, requests: 5.0 + 300.0 / requests)
    estimate = finder.converge(300)
    assert estimate.converged and len(estimate.brackets) == FIRST_SEEDS
    answer = fmean(bracket.keeps for bracket in estimate.brackets)
    assert answer / 5.0 - 1.0 <= LENGTH_SHARE < 300.0 / (estimate.requests / 2) / 5.0


def test_a_wide_interval_takes_more_seeds() -> None:
    noise = [0.97, 1.12, 0.88, 1.03, 1.0]
    estimate = Finder(lambda seed, requests: 5.0 * noise[seed]).converge(1000, longest=1000)
    assert len(estimate.brackets) == MOST_SEEDS and estimate.requests == 1000
    assert estimate.converged is (half_width([bracket.keeps for bracket in estimate.brackets]) <= INTERVAL_SHARE * 5.01)
    assert Finder(lambda seed, requests: 5.0).converge(1000).brackets == (Answer(5.0),) * FIRST_SEEDS


def test_seeds_that_stay_apart_make_runs_longer() -> None:
    finder = Finder(lambda seed, requests: 5.0 + (-1) ** seed * 10.0 / requests**0.5)
    estimate = finder.converge(300)
    assert estimate.converged and estimate.requests > 1000


def test_limits_end_the_search_unconverged() -> None:
    finder = Finder(lambda seed, requests: 1.0 / requests)
    assert not finder.converge(300).converged and finder.work <= MOST_WORK
    finder = Finder(lambda seed, requests: 1.0 / requests)
    assert not finder.converge(300, longest=600).converged and finder.longest == 600


def test_what_is_not_drawn_has_one_answer() -> None:
    estimate = Finder(lambda seed, requests: 5.0).converge(300, longest=300, seeds=1)
    assert estimate == SeedAnswers((Answer(5.0),), 300, True)


def test_runs_that_few_may_miss_are_too_short_whatever_they_answer() -> None:
    assert Finder(lambda seed, requests: 5.0).converge(300, least=2000.0).requests == 2400
    assert not Finder(lambda seed, requests: 5.0).converge(300, longest=1200, least=2000.0).converged


def test_one_request_says_nothing_of_its_half() -> None:
    assert not Finder(lambda seed, requests: 5.0).converge(1, longest=1, seeds=1).converged


def test_whole_numbers_that_differ_by_less_than_a_step_are_equal() -> None:
    finder = Finder(lambda seed, requests: 3.0 + (seed == 0))
    assert finder.converge(300, step=1.0).converged
    assert not Finder(lambda seed, requests: 3.0 + (seed == 0)).converge(300, longest=300).converged


def test_runs_too_short_to_miss_anything_become_longer() -> None:
    def answer(seed: int, requests: int) -> float:
        if requests < 1000:
            raise NothingMissesError("no rate misses the SLO", 1.0)
        return 5.0

    estimate = Finder(answer).converge(300)
    assert estimate.converged and estimate.requests == 2400
    with pytest.raises(NothingMissesError):
        Finder(answer).converge(300, longest=600)


def test_half_as_many_requests_may_keep_nothing() -> None:
    def answer(seed: int, requests: int) -> float:
        if requests < 300:
            raise InfeasibleError("no rate keeps the SLO")
        return 5.0

    assert Finder(answer).converge(300).requests == 600
    with pytest.raises(InfeasibleError):
        Finder(answer).converge(200)


def test_given_seeds_are_all_that_is_run() -> None:
    finder = Finder(lambda seed, requests: 5.0 + seed)
    assert over_seeds(finder.find, range(3, 5), 300) == SeedAnswers((Answer(8.0), Answer(9.0)), 300, None)
    assert finder.work == 2 * 5 * 300


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    random = Random(4)
    hits = 0
    for _ in range(200):
        low, high = interval([random.gauss(10.0, 1.0) for _ in range(5)])
        hits += low <= 10.0 <= high
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


def test_one_value_has_no_interval() -> None:
    assert half_width([3.0]) is None and interval([3.0]) == (None, None)
