"""Families of many quick cases as one test: pytest takes ten times as long over a test as such a case does."""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

Test = Callable[..., None]


def together(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Return a decorator as `pytest.mark.parametrize`, of a test that goes through all cases and names the one at which
    it fails. `cases`: values of one name, or tuples of those of several; those with the mark `nightly` are a test of
    their own. All have the fixtures of one test, so none may leave anything in them, and none may be skipped.

    Raises ValueError without cases, for other marks, and for a test that has nightly cases already."""
    keys = (names,) if isinstance(names, str) else names
    sets = [case if isinstance(case, ParameterSet) else _as_set(names, case) for case in cases]
    if not sets or any(mark.name != "nightly" for case in sets for mark in _marks(case)):
        raise ValueError(f"of {names} there must be cases, without other marks than nightly: {sets}")
    daily, nightly = ([tuple(case.values) for case in sets if bool(case.marks) == marked] for marked in (False, True))

    def decorate(test: Test) -> Test:
        @wraps(test)
        def go_through(_among: Iterable[tuple[object, ...]] = tuple(daily), **fixtures: object) -> None:
            for case in _among:
                values = dict(zip(keys, case, strict=True))
                try:
                    test(**values, **fixtures)
                except BaseException as error:
                    case_named = ", ".join(f"{name}={value!r}" for name, value in values.items())
                    if isinstance(error, pytest.skip.Exception):
                        raise AssertionError(f"a skip would leave out all cases after {case_named}") from error
                    error.add_note(case_named)
                    raise

        whole = signature(test)
        if "_among" in whole.parameters:
            raise ValueError(f"nightly cases of {test.__name__} belong to the decorator on top")
        left = [parameter for name, parameter in whole.parameters.items() if name not in keys]
        among = [Parameter("_among", Parameter.KEYWORD_ONLY)] if nightly else []
        vars(go_through)["__signature__"] = whole.replace(parameters=[*left, *among])
        if not nightly:
            return go_through
        groups = [pytest.param(daily, id="daily"), pytest.param(nightly, id="nightly", marks=pytest.mark.nightly)]
        marked: Test = pytest.mark.parametrize("_among", groups)(go_through)
        return marked

    return decorate


def _marks(case: ParameterSet) -> Iterable[pytest.Mark]:
    return [mark.mark if isinstance(mark, pytest.MarkDecorator) else mark for mark in case.marks]


def _as_set(names: str | tuple[str, ...], case: Any) -> ParameterSet:
    return pytest.param(case) if isinstance(names, str) else pytest.param(*case)
