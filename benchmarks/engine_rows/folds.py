"""Rows left out: of one GPU at a time, or of one source, predicted from all the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

import numpy as np

from benchmarks.engine_rows.hierarchy import Fitted, Hierarchy
from benchmarks.engine_rows.terms import Question
from helmsman.hwdb.engine_calibration import Factors, Linearised, updated

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


def after_one_run(questions: Sequence[Question], machine: Callable[[Question], tuple[str, str]]) -> list[Outcome]:
    """Return the outcomes of all pairs of rows of one machine, as a GPU or a processor with its source, the second
    predicted by a fit without all rows of that GPU or processor (the first of `machine`), updated by the first row."""
    model = Hierarchy(questions)
    whole = model.fit(np.ones(len(questions), bool)).mean
    names = [machine(question) for question in questions]
    made = list[Outcome]()
    for own in sorted({name for name, _ in names}):
        inside = np.array([name == own for name, _ in names])
        fitted = model.fit(~inside, whole)
        for run in np.flatnonzero(inside):
            others = np.array([name == names[run] and at != run for at, name in enumerate(names)])
            if not others.any():
                continue
            said, spread = model.predict(_updated(model, fitted, int(run)), others)
            members = [question for question, other in zip(questions, others, strict=True) if other]
            made += [Outcome(q, exp(s), float(d)) for q, s, d in zip(members, said, spread, strict=True)]
    return made


def _updated(model: Hierarchy, fitted: Fitted, run: int) -> Fitted:
    """Return a fit after one more row, as helm-calibrate moves factors."""
    row = np.arange(len(model.questions)) == run

    def predict(at: Factors) -> Linearised:
        return Linearised(*model.linear(at.mean, row))

    before = Factors(tuple(fitted.names), fitted.mean, fitted.covariance)
    question = model.questions[run]
    after = updated(before, [question.seconds], predict, [question.doubt]).factors
    return Fitted(fitted.names, after.mean, after.covariance)


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
