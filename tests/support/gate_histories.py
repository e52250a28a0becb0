"""Synthetic histories: seconds of runs as machines give them, with a true change or none."""

from dataclasses import dataclass

import numpy as np

from helmsman.schemas.gate_report import FigureTimes

RUNS = 15
EARLIER = 4
"""Measurements since the accepted one, whose medians are known."""


@dataclass(frozen=True)
class SyntheticHistory:
    """An accepted measurement, the medians of later ones, and the newest."""

    baseline: FigureTimes
    sessions: tuple[float, ...]
    now: FigureTimes


def synthetic_history(seed: int, slowdown: float, spread: float | None = None) -> SyntheticHistory:
    """Runs scatter by 0.5 to 2 % (or `spread`), one in thirty takes 10 to 50 % longer because of others, and
    measurements on other days differ by 0.5 %."""
    draw = np.random.default_rng(seed)
    seconds = float(draw.uniform(0.01, 10.0))
    scatter = float(draw.uniform(0.005, 0.02)) if spread is None else spread

    def measured(factor: float = 1.0) -> tuple[float, ...]:
        day = np.exp(draw.normal(0.0, 0.005))
        others = np.where(draw.random(RUNS) < 1 / 30, draw.uniform(1.1, 1.5, RUNS), 1.0)
        return tuple((seconds * factor * day * np.exp(draw.normal(0.0, scatter, RUNS)) * others).tolist())

    accepted = measured()
    sessions = (float(np.median(accepted)), *(float(np.median(measured())) for _ in range(EARLIER)))
    predicted = seconds * 1.03
    newest = FigureTimes(predicted_s=predicted, samples_s=measured(1.0 + slowdown))
    return SyntheticHistory(FigureTimes(predicted_s=predicted, samples_s=accepted), sessions, newest)
