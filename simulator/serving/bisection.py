"""Where an SLO is lost with one seed's draws: the bisection of rates, and of whole numbers."""

from collections.abc import Callable
from math import sqrt

from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.serving import SeedCapacity

PRECISION = 0.01
"""A seed's capacity is between two rates this share apart."""
_WIDEST = 2.0**20
"""The ratio to the first guess up to which a capacity is looked for."""


class NothingMissesError(InfeasibleError):
    """An SLO that was kept by all that was tried: there is no limit to be found, or runs are too short to show it.
    `most`: the rate that was guessed first, or the largest number that was tried."""

    def __init__(self, message: str, most: float) -> None:
        super().__init__(message, field="slo", remedy="use more requests or tighter limits")
        self.most = most


def bisect_rate(keeps: Callable[[float], bool], guess: float, seed: int, factor: float = 2.0) -> SeedCapacity:
    """Return two rates, less than `PRECISION` apart, of which the lower keeps the SLO and the higher misses it.

    `factor`: how far from the guess the second rate is that is tried. Raises InfeasibleError where no rate keeps the
    SLO, NothingMissesError where every one does."""
    low, high = _bracket(keeps, guess, factor)
    while high / low > 1.0 + PRECISION:
        middle = sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return SeedCapacity(seed=seed, keeps=low, misses=high)


def _bracket(keeps: Callable[[float], bool], guess: float, factor: float) -> tuple[float, float]:
    """Return a rate that keeps the SLO and a higher one, at most twice as high, that does not."""
    upward, rate = keeps(guess), guess
    while 1.0 / _WIDEST < rate / guess < _WIDEST:
        other = rate * factor if upward else rate / factor
        if keeps(other) != upward:
            return (rate, other) if upward else (other, rate)
        rate, factor = other, min(2.0, factor**2)
    if upward:
        raise NothingMissesError("no rate misses the SLO", guess)
    remedy = "allow more time: a request alone takes longer"
    raise InfeasibleError("no rate keeps the SLO", field="slo", remedy=remedy)


def bisect_count(holds: Callable[[int], bool], guess: int, most: int) -> int:
    """Return a number up to `most` that holds where one more does not; 0: not even 1 holds; `most`: no number was met
    that does not.

    Where smaller numbers hold and larger ones do not, there is one such number. Otherwise there are several, and which
    of them is returned depends on the guess, from which the bracket grows twice as fast with every trial."""
    low, high, reach = 0, most + 1, max(1, guess // 16)
    count = min(max(1, guess), most)
    while high - low > 1:
        if holds(count):
            low = count
        else:
            high = count
        count, reach = _next_count(low, high, reach, most)
    return low


def lowest_near(holds: Callable[[int], bool], count: int, reach: int) -> int:
    """Return the least number beside `count`, which holds, that holds while one more does not; 0: not even 1 holds.

    Numbers below are tried one by one until `reach` of them hold, so that a loss so near is not passed over."""
    below = count - 1
    while below > 0 and count - below <= reach:
        if not holds(below):
            count = below - 1
        below -= 1
    return count


def _next_count(low: int, high: int, reach: int, most: int) -> tuple[int, int]:
    """Return the number to try next, and how far the one after it may be from the bracket."""
    if high > most:
        return min(low + reach, most), 2 * reach
    if low == 0:
        return max(high - reach, 1), 2 * reach
    return (low + high) // 2, reach
