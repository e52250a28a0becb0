"""Ranks a study's rows under the same circumstances: by what can be served where that was asked, else by seconds of a
request."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from helmsman.schemas.study import Study
from helmsman.schemas.study_report import Measure, Scenario
from helmsman.schemas.study_row import StudyRow

Place = tuple[str, str, str]
"""A model, a machine and its change."""


@dataclass(frozen=True)
class RowRanking:
    """The rows of a study, and how those of one scenario compare: `members`, their numbers; `number`: the scenario's
    own."""

    study: Study
    rows: Sequence[StudyRow]
    scenario: Scenario
    number: int
    members: Sequence[int]

    @property
    def measure(self) -> Measure:
        """The column by which answers are compared."""
        return measure_of(self.study)

    def goodness(self, number: int) -> float:
        """Return `goodness` of a row."""
        return goodness(self.measure, self.rows[number])

    def best(self, numbers: Iterable[int]) -> int | None:
        """Return the best of some rows, the first of equals; None where none is any good."""
        good = [number for number in numbers if self.goodness(number) > -inf]
        return max(good, key=self.goodness, default=None)

    @cached_property
    def by_place(self) -> dict[Place, list[int]]:
        """Return the numbers of the scenario's rows by model, machine and change."""
        places: dict[Place, list[int]] = {}
        for number in self.members:
            row = self.rows[number]
            places.setdefault((row.model, row.machine, row.change), []).append(number)
        return places

    @cached_property
    def best_by_place(self) -> dict[Place, int | None]:
        """Return the best row of every model on every machine with every change."""
        return {place: self.best(numbers) for place, numbers in self.by_place.items()}


def rankings_of(study: Study, rows: Sequence[StudyRow]) -> tuple[RowRanking, ...]:
    """Return the rankings of all scenarios, in the order in which rows first have them."""
    members: dict[Scenario, list[int]] = {}
    for number, row in enumerate(rows):
        members.setdefault(scenario_of(row), []).append(number)
    return tuple(
        RowRanking(study, rows, scenario, number, numbers) for number, (scenario, numbers) in enumerate(members.items())
    )


def scenario_of(row: StudyRow) -> Scenario:
    """Return the circumstances of a row."""
    return Scenario(**{name: getattr(row, name) for name in Scenario.model_fields})


def measure_of(study: Study) -> Measure:
    """Return the column by which a study's answers are compared."""
    if study.serving is None:
        return "request_s"
    return "users" if study.serving.think else "rate"


def goodness(measure: Measure, row: StudyRow) -> float:
    """Return a number that is larger for a better row: requests a second of one batch where seconds count."""
    value = getattr(row, measure)
    if value is None or row.keeps_slo is False:
        return -inf
    return row.batch / value if measure == "request_s" else float(value)
