"""The maximum rate that keeps an SLO: bisection for each seed's arrivals, and a confidence interval over seeds.

Arrivals of one seed keep their pattern at every rate, so keeping the SLO hardly ever comes back at a higher one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.serving import SeedCapacity

Keeps = Callable[[float, int], bool]
"""Whether arrivals at a rate, with a seed, keep the SLO."""

PRECISION = 0.01
"""A seed's capacity is between two rates this share apart."""
_WIDEST = 2.0**20
"""How far from the first guess a capacity is looked for."""
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""97.5th percentile of Student's t with 1, 2, ... degrees of freedom."""
_NORMAL = 1.960


@dataclass(frozen=True, slots=True)
class Capacity:
    """The mean of the seeds' capacities, its 95 % interval (none for one seed), and how many runs were made."""

    rate: float
    low: float | None
    high: float | None
    runs: int
    seeds: tuple[SeedCapacity, ...]


def find_capacity(keeps: Keeps, guess: float, seeds: Sequence[int]) -> Capacity:
    """Return the highest rate that keeps the SLO, near `guess` requests a second.

    Raises InfeasibleError where no rate down to a millionth of the guess keeps it, or none up to a million times it
    misses it."""
    runs = 0

    def counted(rate: float, seed: int) -> bool:
        nonlocal runs
        runs += 1
        return keeps(rate, seed)

    brackets = tuple(_bisect(counted, guess, seed) for seed in seeds)
    rates = [bracket.keeps for bracket in brackets]
    mean, half = fmean(rates), half_width(rates)
    low, high = (None, None) if half is None else (max(0.0, mean - half), mean + half)
    return Capacity(mean, low, high, runs, brackets)


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean; none for one value."""
    freedom = len(values) - 1
    if freedom < 1:
        return None
    quantile = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    return quantile * stdev(values) / sqrt(len(values))


def _bisect(keeps: Keeps, guess: float, seed: int) -> SeedCapacity:
    low, high = _bracket(keeps, guess, seed)
    while high / low > 1.0 + PRECISION:
        middle = sqrt(low * high)
        low, high = (middle, high) if keeps(middle, seed) else (low, middle)
    return SeedCapacity(seed=seed, keeps=low, misses=high)


def _bracket(keeps: Keeps, guess: float, seed: int) -> tuple[float, float]:
    """Return a rate that keeps the SLO and one twice as high that does not."""
    upward = keeps(guess, seed)
    rate, factor = guess, 2.0 if upward else 0.5
    while 1.0 / _WIDEST < rate / guess < _WIDEST:
        other = rate * factor
        if keeps(other, seed) != upward:
            return (rate, other) if upward else (other, rate)
        rate = other
    if upward:
        raise InfeasibleError("no rate misses the SLO", field="slo", remedy="use more requests or tighter limits")
    remedy = "allow more time: a request alone takes longer"
    raise InfeasibleError("no rate keeps the SLO", field="slo", remedy=remedy)
