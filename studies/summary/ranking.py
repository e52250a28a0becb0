"""Ranks a study's rows: by what can be served where that was asked, else by seconds of a request."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from helmsman.schemas.study import Study
from helmsman.schemas.study_report import Measure
from helmsman.schemas.study_row import StudyRow

Place = tuple[str, str, str]
"""A model, a machine and its change."""


@dataclass(frozen=True)
class RowRanking:
    """The rows of a study and how they compare."""

    study: Study
    rows: Sequence[StudyRow]

    @property
    def measure(self) -> Measure:
        """The column by which answers are compared."""
        if self.study.serving is None:
            return "request_s"
        return "rate" if self.study.serving.think is None else "users"

    def goodness(self, number: int) -> float:
        """Return a number that is larger for a better row: requests a second of one batch where seconds count."""
        row = self.rows[number]
        value = getattr(row, self.measure)
        if value is None or row.keeps_slo is False:
            return -inf
        return row.batch / value if self.measure == "request_s" else float(value)

    def best(self, numbers: Iterable[int]) -> int | None:
        """Return the best of some rows, the first of equals; None where none is any good."""
        good = [number for number in numbers if self.goodness(number) > -inf]
        return max(good, key=self.goodness, default=None)

    @cached_property
    def by_place(self) -> dict[Place, list[int]]:
        """Return the numbers of all rows by model, machine and change."""
        places: dict[Place, list[int]] = {}
        for number, row in enumerate(self.rows):
            places.setdefault((row.model, row.machine, row.change), []).append(number)
        return places

    @cached_property
    def best_by_place(self) -> dict[Place, int | None]:
        """Return the best row of every model on every machine with every change."""
        return {place: self.best(numbers) for place, numbers in self.by_place.items()}
