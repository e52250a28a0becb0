"""Families of cases in one test: all of them are gone through, and none can be left out unseen."""

import pytest
from together import together


def test_every_case_is_gone_through_and_the_failing_one_is_named() -> None:
    seen: list[tuple[int, str]] = []

    @together("number", [1, 2, 3])
    @together(("letter", "fails"), [("a", False), ("b", True)])
    def family(number: int, letter: str, fails: bool) -> None:
        seen.append((number, letter))
        assert not (fails and number == 2)

    with pytest.raises(AssertionError) as raised:
        family()
    assert seen == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert raised.value.__notes__ == ["letter='b', fails=True", "number=2"]


def test_nightly_cases_are_a_test_of_their_own() -> None:
    seen: list[int] = []

    @together("number", [1, pytest.param(2, marks=pytest.mark.nightly), 3])
    def family(number: int) -> None:
        seen.append(number)

    [mark] = vars(family)["pytestmark"]
    daily, nightly = mark.args[1]
    family(_among=daily.values[0])
    assert seen == [1, 3] and [mark.name for mark in nightly.marks] == ["nightly"]
    family(_among=nightly.values[0])
    assert seen == [1, 3, 2] and not daily.marks
    with pytest.raises(ValueError, match="decorator on top"):
        together("other", [1])(family)


def test_nothing_is_left_out_unseen() -> None:
    with pytest.raises(ValueError, match="there must be cases"):
        together("number", [])
    with pytest.raises(ValueError, match="without other marks"):
        together("number", [pytest.param(1, marks=pytest.mark.skip)])
    with pytest.raises(AssertionError, match="all cases after number=1"):
        together("number", [1, 2])(lambda number: pytest.skip("no GPU"))()
