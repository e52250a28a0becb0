"""Families of cases of which a part runs every day, and all at night."""

from collections.abc import Iterable
from itertools import count

import pytest
from _pytest.mark.structures import ParameterSet


def one_in(step: int, cases: Iterable[object]) -> list[ParameterSet]:
    """Return cases for `parametrize`: of those without marks the first and each `step`-th after it run every day, the
    others at night. A tuple has the values of several names."""
    number = count()
    nightly = (pytest.mark.nightly,)
    return [
        case if case.marks or next(number) % step == 0 else case._replace(marks=nightly)
        for case in map(_as_case, cases)
    ]


def _as_case(case: object) -> ParameterSet:
    if isinstance(case, ParameterSet):
        return case
    return pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)
