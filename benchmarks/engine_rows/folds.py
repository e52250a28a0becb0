"""Rows left out: of one GPU at a time, or of one source, predicted from all the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

import numpy as np

from benchmarks.engine_rows.hierarchy import Hierarchy
from benchmarks.engine_rows.terms import Question
from helmsman.hwdb.engine_calibration import calibrated, uncalibrated

Z95 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class Outcome:
    """The seconds said of a row without its fold, and the standard deviation of their logarithm."""

    question: Question
    said: float
    spread: float

    @property
    def error(self) -> float:
        """Return how far the speed that was said is from the measured one, as a part of that."""
        return self.question.seconds / self.said - 1.0

    @property
    def covered(self) -> bool:
        """Whether the measured seconds are within the interval of 90 %."""
        return abs(log(self.said / self.question.seconds)) <= Z95 * self.spread

    @property
    def width(self) -> float:
        """Return the interval's upper end over its lower one."""
        return exp(2.0 * Z95 * self.spread)


def left_out(questions: Sequence[Question], fold: Callable[[Question], str]) -> list[Outcome]:
    """Return the outcomes of all questions, each fold predicted by a fit to the others."""
    model = Hierarchy(questions)
    whole = model.fit(np.ones(len(questions), bool)).mean
    names = [fold(question) for question in questions]
    made = list[Outcome]()
    for name in sorted(set(names)):
        rows = np.array([other == name for other in names])
        said, spread = model.predict(model.fit(~rows, whole), rows)
        members = [question for question, inside in zip(questions, rows, strict=True) if inside]
        made += [Outcome(q, exp(s), float(d)) for q, s, d in zip(members, said, spread, strict=True)]
    return made


def after_one_run(questions: Sequence[Question]) -> list[Outcome]:
    """Return the outcomes of all pairs of rows of one GPU and one session, the second predicted by constants fitted
    without the GPU and calibrated by the first."""
    model = Hierarchy(questions)
    whole = model.fit(np.ones(len(questions), bool)).mean
    sessions = [(question.device.nodes[0], question.row.source) for question in questions]
    made = list[Outcome]()
    for own in sorted({node for node, _ in sessions}):
        of_gpu = np.array([node == own for node, _ in sessions])
        fitted = model.fit(~of_gpu, whole)
        places = [at for at, inside in enumerate(of_gpu) if inside]
        parts = {at: model.parts(fitted, at) for at in places}
        for run in places:
            seconds = {name: value for name, (value, _) in parts[run].items()}
            before = uncalibrated({name: sd for name, (_, sd) in parts[run].items()})
            after = calibrated(before, seconds, questions[run].seconds)
            for other in places:
                if other != run and sessions[other] == sessions[run]:
                    said, spread = after.predict({name: value for name, (value, _) in parts[other].items()})
                    made.append(Outcome(questions[other], said, spread))
    return made


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of some outcomes: |error| of speeds, covered parts, widths of intervals."""

    count: int
    median: float
    p90: float
    covered: float
    width: float


def summary(outcomes: Sequence[Outcome]) -> Summary:
    """Return the figures of outcomes, at least one."""
    errors = [abs(outcome.error) for outcome in outcomes]
    covered = sum(outcome.covered for outcome in outcomes) / len(outcomes)
    p90 = float(np.quantile(errors, 0.9))
    return Summary(len(outcomes), median(errors), p90, covered, median(outcome.width for outcome in outcomes))
