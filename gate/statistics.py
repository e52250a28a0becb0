"""Two samples of seconds compared: by how much they differ, how sure that is, and how many runs that takes.

All functions are pure: they know neither clocks nor files. A change is the median of all ratios candidate / baseline,
less 1 (Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963, of logarithms); the ends of its interval are
ratios too (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 4.3, with the normal approximation)."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from math import comb, floor, sqrt
from statistics import NormalDist, median

from helmsman.analysis.samples import pair_difference
from helmsman.schemas.errors import HardwareUnavailableError

SIGNIFICANCE = 0.002
"""The p of a two-sided test below which a difference is no accident."""
LEAST_CHANGE = 0.05
"""The relative change that counts, at least."""
CONFIDENCE = 0.99
"""The probability with which the true change lies below the upper end of its interval, and above the lower."""
NOISES = 3.0
"""The number of times its noise that a change has to exceed."""
FEWEST_SESSIONS = 5
"""The number of earlier measurements from which on their differences say something."""
MAX_RUNS = 1000
"""The number of runs of one sample at most."""


@dataclass(frozen=True, slots=True)
class Change:
    """By how much a candidate's seconds differ from a baseline's: 0.1 is 10 % slower.

    `low`, `high`: the ends of its interval; `p_value`: of the two-sided test; `noise`: relative difference of runs
    between which nothing changed; `threshold`: what `relative` has to exceed to count."""

    relative: float
    low: float
    high: float
    p_value: float
    noise: float
    threshold: float

    @property
    def counts(self) -> bool:
        """Whether the change is large enough and no accident."""
        return abs(self.relative) > self.threshold and self.p_value < SIGNIFICANCE


UNCHANGED = Change(relative=0.0, low=0.0, high=0.0, p_value=1.0, noise=0.0, threshold=LEAST_CHANGE)
"""The change between a measurement and itself."""


def can_differ(baseline: int, candidate: int) -> bool:
    """Whether samples of so many runs could differ significantly: the least two-sided p of n and m runs is
    2 / C(n + m, n)."""
    return 2.0 / comb(baseline + candidate, baseline) < SIGNIFICANCE


def least_runs() -> int:
    """Return the least size of two equal samples that can differ significantly: 7 below a p of 0.002."""
    return next(size for size in range(1, MAX_RUNS) if can_differ(size, size))


def runs_missing(baseline: int, candidate: int) -> int:
    """Return how many more runs of a candidate it takes until a difference could be significant; `baseline`: at least
    `least_runs()`."""
    return next(more for more in range(MAX_RUNS) if can_differ(baseline, candidate + more))


def change_between(baseline: Sequence[float], candidate: Sequence[float], sessions: Sequence[float] = ()) -> Change:
    """Return by how much `candidate` differs from `baseline`: seconds of runs, in the order of measuring.

    `sessions`: medians of earlier measurements of the same thing, whose differences are noise as well.
    Raises ValueError for samples without a value above 0, HardwareUnavailableError without SciPy."""
    if not baseline or not candidate or min(*baseline, *candidate) <= 0.0:
        raise ValueError("two samples of positive seconds are compared")
    ratios = sorted(new / old for new in candidate for old in baseline)
    end = _end_rank(len(baseline), len(candidate))
    noise = noise_of(baseline, candidate, sessions)
    return Change(
        relative=median(ratios) - 1.0,
        low=ratios[end] - 1.0,
        high=ratios[-1 - end] - 1.0,
        p_value=p_value(baseline, candidate),
        noise=noise,
        threshold=max(LEAST_CHANGE, NOISES * noise),
    )


def noise_of(baseline: Sequence[float], candidate: Sequence[float], sessions: Sequence[float] = ()) -> float:
    """Return the median relative difference of neighbouring runs of one side, A against A; or that of neighbouring
    `sessions`, where these differ more. 0 where no side has two runs."""
    pairs = [abs(later / run - 1.0) for side in (baseline, candidate) for run, later in pairwise(side)]
    within = median(pairs) if pairs else 0.0
    between = pair_difference(sessions) if len(sessions) >= FEWEST_SESSIONS else None
    return max(within, between or 0.0)


def p_value(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """Return the p of the two-sided Mann-Whitney test, exact where no two values are equal.

    Raises HardwareUnavailableError without SciPy."""
    if len({*baseline, *candidate}) == 1:
        return 1.0
    check_scipy()
    from scipy.stats import mannwhitneyu

    tied = len({*baseline, *candidate}) < len(baseline) + len(candidate)
    result = mannwhitneyu(baseline, candidate, alternative="two-sided", method="asymptotic" if tied else "exact")
    return float(result.pvalue)


def check_scipy() -> None:
    """Raise HardwareUnavailableError where SciPy, which computes the test, is not installed."""
    if find_spec("scipy") is None:
        remedy = "install it: pip install 'helmsman[gate]'"
        raise HardwareUnavailableError("the Mann-Whitney test needs SciPy, which is missing", remedy=remedy)


def _end_rank(baseline: int, candidate: int) -> int:
    """Return how many of the sorted ratios lie below the interval, and above it."""
    z = NormalDist().inv_cdf(CONFIDENCE)
    pairs = baseline * candidate
    rank = floor(pairs / 2.0 - z * sqrt(pairs * (baseline + candidate + 1) / 12.0))
    return max(0, rank - 1)
