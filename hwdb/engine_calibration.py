"""An engine's constants on a machine of which one run is known: what a measured speed says of each of them.

Seconds are a sum of parts, each of which may be off by a factor of its own whose logarithm is normal around 0. A run
moves the factors in proportion to what they explain of it and to how uncertain they are, and leaves them more certain:
the update of an extended Kalman filter, linearised at its own result (Bell and Cathey 1993)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log, sqrt

NOISE = 0.03
"""The standard deviation of the logarithm of a run beside what the machine explains."""

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Logarithms of the factors of parts, and their covariance, both by name."""

    mean: Mapping[str, float]
    covariance: Mapping[tuple[str, str], float]

    def predict(self, parts: Mapping[str, float]) -> tuple[float, float]:
        """Return the seconds of a sum of `parts`, which are seconds without factors, and the standard deviation of
        their logarithm, that of a run beside."""
        seconds = {name: part * exp(self.mean[name]) for name, part in parts.items()}
        total = sum(seconds.values())
        slopes = {name: value / total for name, value in seconds.items()}
        known = sum(slopes[a] * slopes[b] * self.covariance[a, b] for a in slopes for b in slopes)
        return total, sqrt(known + NOISE**2)

    def factor(self, name: str) -> float:
        """Return by what a part is to be multiplied."""
        return exp(self.mean[name])


def uncalibrated(spread: Mapping[str, float]) -> Calibrated:
    """Return what is known before any run: factors of 1 with these standard deviations of logarithms, each of them
    independent of the others."""
    covariance = {(a, b): spread[a] ** 2 if a == b else 0.0 for a in spread for b in spread}
    return Calibrated(dict.fromkeys(spread, 0.0), covariance)


def calibrated(before: Calibrated, parts: Mapping[str, float], measured: float) -> Calibrated:
    """Return what is known after a run whose `parts` took `measured` seconds together; parts are seconds without
    factors. Runs may follow each other."""
    at = dict(before.mean)
    names = list(at)
    for _ in range(_ROUNDS):
        seconds = {name: parts.get(name, 0.0) * exp(at[name]) for name in names}
        total = sum(seconds.values())
        slopes = {name: seconds[name] / total for name in names}
        moved = {a: sum(before.covariance[a, b] * slopes[b] for b in names) for a in names}
        variance = sum(slopes[name] * moved[name] for name in names) + NOISE**2
        missing = log(measured / total) - sum(slopes[name] * (before.mean[name] - at[name]) for name in names)
        at = {name: before.mean[name] + moved[name] / variance * missing for name in names}
    covariance = {(a, b): before.covariance[a, b] - moved[a] * moved[b] / variance for a in names for b in names}
    return Calibrated(at, covariance)
