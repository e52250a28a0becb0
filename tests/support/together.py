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
    their own. All have the fixtures of one test."""
    keys = (names,) if isinstance(names, str) else names
    sets = [case if isinstance(case, ParameterSet) else _as_set(names, case) for case in cases]
    daily, nightly = ([case.values for case in sets if bool(case.marks) == marked] for marked in (False, True))

    def decorate(test: Test) -> Test:
        @wraps(test)
        def go_through(_among: Iterable[tuple[object, ...]] = tuple(daily), **fixtures: object) -> None:
            for case in _among:
                values = dict(zip(keys, case, strict=True))
                try:
                    test(**values, **fixtures)
                except BaseException as error:
                    error.add_note(", ".join(f"{name}={value!r}" for name, value in values.items()))
                    raise

        whole = signature(test)
        left = [parameter for name, parameter in whole.parameters.items() if name not in keys]
        among = [Parameter("_among", Parameter.KEYWORD_ONLY)] if nightly else []
        go_through.__signature__ = whole.replace(parameters=[*left, *among])  # type: ignore[attr-defined]
        if not nightly:
            return go_through
        groups = [pytest.param(daily, id="daily"), pytest.param(nightly, id="nightly", marks=pytest.mark.nightly)]
        marked: Test = pytest.mark.parametrize("_among", groups)(go_through)
        return marked

    return decorate


def _as_set(names: str | tuple[str, ...], case: Any) -> ParameterSet:
    return pytest.param(case) if isinstance(names, str) else pytest.param(*case)
