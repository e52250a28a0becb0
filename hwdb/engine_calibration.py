"""Factors of an engine's constants that runs on a machine move: what a measured speed says of each of them.

Seconds depend on factors whose logarithms are normal. Runs move factors in proportion to what they explain and to how
uncertain they are, and leave them more certain: the update of an iterated extended Kalman filter, all runs at once,
linearised at its own result (Bell and Cathey 1993)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from typing import Any

import numpy as np

from helmsman.schemas.engine_calibration import CalibratingRun, EngineCalibration

NOISE = 0.04
"""The standard deviation of the logarithm of a run beside what constants explain, as in the fit of the tables."""

_ROUNDS = 6
_SETTLED = 2e-3
"""Change of a logarithm below which the linearisation stands."""

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Factors:
    """Logarithms of factors by name: their mean and covariance."""

    names: tuple[str, ...]
    mean: Array
    covariance: Array

    def factor(self, name: str) -> float:
        """Return by what a constant is to be multiplied; 1 for one that is not among them."""
        return exp(float(self.mean[self.names.index(name)])) if name in self.names else 1.0

    def spread(self, slopes: Mapping[str, float]) -> float:
        """Return the standard deviation of the logarithm of seconds with these slopes by factor, without noise."""
        along = np.array([slopes.get(name, 0.0) for name in self.names])
        return sqrt(max(0.0, float(along @ self.covariance @ along)))

    def at(self, mean: Array) -> "Factors":
        """Return the same factors at other means."""
        return Factors(self.names, mean, self.covariance)


@dataclass(frozen=True, slots=True)
class Linearised:
    """Predictions of runs at some factors: logarithms of seconds, and their slopes by run and factor."""

    logarithms: Array
    slopes: Array

    @classmethod
    def stacked(cls, parts: "Sequence[Linearised]") -> "Linearised":
        """Return the predictions of several runs after each other."""
        return cls(np.concatenate([p.logarithms for p in parts]), np.concatenate([p.slopes for p in parts]))


@dataclass(frozen=True, slots=True)
class Updated:
    """Factors after runs, the predictions there, and how far each run lies from what the others alone predict of it, as
    a logarithm; None for a run that is alone."""

    factors: Factors
    predicted: Linearised
    apart: tuple[float | None, ...]


def updated(
    before: Factors, seconds: Sequence[float], predict: Callable[[Factors], Linearised], noise: Sequence[float] = ()
) -> Updated:
    """Return the factors after runs that took `seconds`, at least one; `predict` says what runs take with given
    factors; `noise`: standard deviations of their logarithms beside `NOISE`."""
    measured = np.log(np.array(seconds))
    own = np.array(noise) if len(noise) else np.zeros(len(measured))
    scatter = np.diag(NOISE**2 + own**2)
    at = before.mean
    for _ in range(_ROUNDS):
        line = predict(before.at(at))
        missing = measured - line.logarithms - line.slopes @ (before.mean - at)
        known = line.slopes @ before.covariance @ line.slopes.T + scatter
        gain = np.linalg.solve(known, line.slopes @ before.covariance).T
        moved, at = at, before.mean + gain @ missing
        if np.abs(at - moved).max() < _SETTLED:
            break
    covariance = before.covariance - gain @ line.slopes @ before.covariance
    precise, alone = np.linalg.inv(known), len(measured) == 1
    apart = tuple(None if alone else float(v) for v in (precise @ missing) / np.diag(precise))
    after = Factors(before.names, at, (covariance + covariance.T) / 2.0)
    return Updated(after, line, apart)


def slopes_of(seconds: Callable[[Factors], Sequence[float]], at: Factors, used: Sequence[str]) -> Linearised:
    """Return predictions of runs at some factors, with slopes by differences for the factors in `used`; those of others
    are 0."""
    here = np.log(np.array(seconds(at)))
    slopes = np.zeros((len(here), len(at.names)))
    for place, name in enumerate(at.names):
        if name in used:
            moved = at.mean.copy()
            moved[place] += _STEP
            slopes[:, place] = (np.log(np.array(seconds(at.at(moved)))) - here) / _STEP
    return Linearised(here, slopes)


_STEP = 0.02
"""By how much a logarithm is moved to see what follows."""


def factors_in(calibration: EngineCalibration) -> Factors:
    """Return the factors that a record has."""
    count = len(calibration.names)
    covariance = np.zeros((count, count))
    covariance[np.tril_indices(count)] = calibration.covariance
    return Factors(calibration.names, np.array(calibration.mean), covariance + np.tril(covariance, -1).T)


def joined(known: Factors, fresh: Factors) -> Factors:
    """Return known factors with those of `fresh` that are not among them, independent of them."""
    more = [place for place, name in enumerate(fresh.names) if name not in known.names]
    count = len(known.names)
    covariance = np.zeros((count + len(more),) * 2)
    covariance[:count, :count] = known.covariance
    covariance[count:, count:] = fresh.covariance[np.ix_(more, more)]
    names = (*known.names, *(fresh.names[place] for place in more))
    return Factors(names, np.concatenate([known.mean, fresh.mean[more]]), covariance)


def triangle(covariance: Array) -> tuple[float, ...]:
    """Return the lower triangle of a covariance, row by row."""
    return tuple(float(f"{value:.6g}") for value in covariance[np.tril_indices(len(covariance))])


def speed_of(run: CalibratingRun, seconds: float) -> float:
    """Return the figure of a run that takes `seconds`: tokens/s of a step or a prompt, or the seconds."""
    return seconds if run.of == "request" else rows_of(run) / seconds


def seconds_of(run: CalibratingRun) -> float:
    """Return the seconds that a run took: of a step, of a prompt, or of a request."""
    return run.value if run.of == "request" else rows_of(run) / run.value


def rows_of(run: CalibratingRun) -> int:
    """Return the tokens of a run's pass: one of each sequence in a decode step, else of their prompts."""
    return run.batch * (1 if run.of == "decode" else run.prompt_tokens - run.prefix_tokens)


def relative(logarithm: float) -> float:
    """Return how far a speed is from another as a part of that, of the logarithm of their seconds' ratio."""
    return exp(-logarithm) - 1.0
