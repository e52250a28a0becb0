"""Constants that lean on each other: a robust maximum a posteriori fit of sums of terms, and what is uncertain of it.

Each constant's logarithm is a sum of effects with normal priors, so that a device with few rows leans on its class,
that on its kind, that on the backend. Steps are Gauss-Newton's, rows weighted as by a soft L1 loss; the covariance is
that of the linearised problem (Gelman and Hill 2007, chapters 12 and 13, for the model)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.engine_rows.terms import Question, Term

NOISE = 0.04
"""The standard deviation of the logarithm of a row beside what effects explain."""

_ROUNDS = 60
_SETTLED = 1e-2
"""Fall of the misfit below which a fit stands."""
_LEAST_PART = 1e-3
"""The least part of a step that is tried."""

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Effects by name, and their covariance."""

    names: dict[str, int]
    mean: Array
    covariance: Array


class Hierarchy:
    """The questions of one phase, and fits to any part of them."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = questions
        effects = {e.name: e for q in questions for t in q.terms for e in t.effects}
        self.names = {name: at for at, name in enumerate(sorted(effects))}
        self.prior = np.array([effects[name].mean for name in self.names])
        self.sd = np.array([effects[name].sd for name in self.names])
        most, count = max(len(q.terms) for q in questions), len(questions)
        self.amounts = np.zeros((count, most))
        self.design = np.zeros((count, most, len(self.names)))
        for at, question in enumerate(questions):
            for place, term in enumerate(question.terms):
                self._enter(at, place, term)
        self.seconds = np.array([q.seconds for q in questions])
        self.noise = np.hypot(NOISE, np.array([q.doubt for q in questions]))

    def _enter(self, at: int, place: int, term: Term) -> None:
        self.amounts[at, place] = term.amount
        for effect in term.effects:
            self.design[at, place, self.names[effect.name]] += -effect.by if term.rate else effect.by

    def fit(self, rows: Array, start: Array | None = None) -> Fitted:
        """Return the fit to the rows where `rows` is true."""
        at = (self.prior if start is None else start).copy()
        places, best = np.diag_indices(len(at)), self._misfit(at, rows)
        for _ in range(_ROUNDS):
            logarithm, slopes = self.linear(at, rows)
            residual = (logarithm - np.log(self.seconds[rows])) / self.noise[rows]
            weight = 1.0 / np.sqrt(1.0 + residual * residual / 4.0)
            slopes = slopes / self.noise[rows, None]
            normal = (slopes * weight[:, None]).T @ slopes
            normal[places] += 1.0 / self.sd**2
            step = np.linalg.solve(normal, slopes.T @ (weight * residual) + (at - self.prior) / self.sd**2)
            part = min(1.0, 1.0 / max(1e-12, float(np.abs(step).max())))
            while (misfit := self._misfit(at - part * step, rows)) > best and part > _LEAST_PART:
                part /= 2.0
            settled = best - misfit < _SETTLED
            at, best = (at - part * step, misfit) if misfit < best else (at, best)
            if settled:
                break
        return Fitted(self.names, at, np.linalg.inv(normal))

    def _misfit(self, at: Array, rows: Array) -> float:
        """Return what the fit makes as small as it gets: soft L1 of residuals, and how far effects are from priors."""
        residual = (self.linear(at, rows)[0] - np.log(self.seconds[rows])) / self.noise[rows]
        soft = 8.0 * (np.sqrt(1.0 + residual * residual / 4.0) - 1.0)
        return float(soft.sum() + (((at - self.prior) / self.sd) ** 2).sum())

    def evidence(self, rows: Array) -> float:
        """Return the logarithm of how likely rows are with these spreads of effects, whatever effects are (Laplace's
        approximation), but for what does not depend on spreads."""
        fitted = self.fit(rows)
        half = 0.5 * float(np.linalg.slogdet(fitted.covariance)[1])
        return half - 0.5 * self._misfit(fitted.mean, rows) - float(np.log(self.sd).sum())

    def predict(self, fitted: Fitted, rows: Array) -> tuple[Array, Array]:
        """Return the logarithm of the seconds of rows, and its standard deviation."""
        logarithm, slopes = self.linear(fitted.mean, rows)
        variance = np.einsum("ip,pq,iq->i", slopes, fitted.covariance, slopes)
        return logarithm, np.sqrt(variance + self.noise[rows] ** 2)

    def linear(self, at: Array, rows: Array) -> tuple[Array, Array]:
        """Return the logarithm of seconds, and its slopes by effect."""
        design = self.design[rows]
        parts = self.amounts[rows] * np.exp(design @ at)
        total = parts.sum(axis=1)
        return np.log(total), np.einsum("ij,ijp->ip", parts / total[:, None], design)
