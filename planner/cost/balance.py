"""Shares of storage devices that finish together, found by measuring them at work at the same time (PARK 4.1)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from helmsman.schemas.errors import BadInputError

Measure = Callable[[tuple[float, ...]], tuple[float, ...]]
"""Seconds every device takes for its share while all others take theirs; 0 for a device without a share."""

Step = tuple[tuple[float, ...], tuple[float, ...]]
"""Shares and the seconds measured with them."""


@dataclass(frozen=True, slots=True)
class BalancedShares:
    """The most even shares that were measured, and every (shares, seconds) in the order of measuring."""

    shares: tuple[float, ...]
    history: tuple[Step, ...]


def balance(
    shares: Sequence[float],
    measure: Measure,
    alpha: float = 0.8,
    iterations: int = 10,
    tolerance: float = 1.01,
) -> BalancedShares:
    """Shares, in the unit of `shares`, of nearly equal times, by at most `iterations` measurements.

    Stops once the longest time is at most `tolerance` of the shortest. The total stays what it was (1 if that was 0).
    `alpha` is the part of the correction that is made at each step: eq. 3 with the other sign, because as printed it
    gives slow devices more and diverges (E-PARK-01). Raises BadInputError for shares or times that cannot be.
    """
    _check(shares, alpha, iterations)
    total = sum(shares) or 1.0
    current = tuple(shares) if sum(shares) else (total / len(shares),) * len(shares)
    history: list[Step] = []
    while len(history) < iterations:
        seconds = _measured(measure, current)
        history.append((current, seconds))
        if spread(seconds) <= tolerance:
            break
        current = _corrected(history, alpha, total)
    return BalancedShares(min(history, key=lambda step: spread(step[1]))[0], tuple(history))


def spread(seconds: Sequence[float]) -> float:
    """The longest over the shortest of the times; infinite if one is 0."""
    return max(seconds) / min(seconds) if min(seconds) > 0 else float("inf")


def _corrected(history: Sequence[Step], alpha: float, total: float) -> tuple[float, ...]:
    """s (1 + (t_avg / t - 1) gain), eq. 3 and 4 with the right sign, scaled to `total`.

    s t_avg / t is t_avg times the device's rate; a device without a share has none, so it is taken to be as fast as
    the others are on average. That is what lets shares of zero grow.
    """
    shares, seconds = history[-1]
    rates = [share / time for share, time in zip(shares, seconds, strict=True) if time > 0]
    mean, even = fmean(rates), fmean(time for time in seconds if time > 0)
    positive = 0.95 * max(seconds) / max(max(seconds) - even, 1e-300)
    gain = min(alpha / _response(history), positive)
    grown = [
        share * (1 - gain) + gain * even * (share / time if time > 0 else mean)
        for share, time in zip(shares, seconds, strict=True)
    ]
    return tuple(share * total / sum(grown) for share in grown)


def _response(history: Sequence[Step]) -> float:
    """How far relative times follow relative shares, between the last two steps; 1 for independent devices.

    Behind a shared ceiling a device that is late runs its rest alone and fast, so times differ less than shares and
    the plain correction creeps. Least squares of the changes of log times over those of log shares, kept in [1/4, 2].
    """
    if len(history) < 2 or min(map(min, (*history[-1], *history[-2]))) <= 0:
        return 1.0
    (shares_0, seconds_0), (shares_1, seconds_1) = history[-2:]
    moved, followed = _log_change(shares_0, shares_1), _log_change(seconds_0, seconds_1)
    squares = sum(change * change for change in moved)
    if squares == 0:
        return 1.0
    slope = sum(x * y for x, y in zip(moved, followed, strict=True)) / squares
    return min(max(slope, 0.25), 2.0)


def _log_change(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """Logarithms of after / before, less their mean."""
    changes = [math.log(b / a) for a, b in zip(before, after, strict=True)]
    return [change - fmean(changes) for change in changes]


def _measured(measure: Measure, shares: tuple[float, ...]) -> tuple[float, ...]:
    seconds = tuple(measure(shares))
    if len(seconds) != len(shares):
        raise BadInputError("one time for every device", field="measure", value=len(seconds))
    for share, time in zip(shares, seconds, strict=True):
        if not 0 <= time < float("inf") or (share > 0 and time == 0):
            raise BadInputError("not the time of a transfer", field="measure", value=time)
    return seconds


def _check(shares: Sequence[float], alpha: float, iterations: int) -> None:
    if not shares or not all(0 <= share < float("inf") for share in shares):
        raise BadInputError("shares are finite, zero or more, at least one", field="shares", value=tuple(shares))
    if not 0 < alpha <= 1:
        raise BadInputError("a part of the correction, over 0 and at most 1", field="alpha", value=alpha)
    if iterations < 1:
        raise BadInputError("needs at least one measurement", field="iterations", value=iterations)
