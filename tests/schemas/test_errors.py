"""Refusals: what would help is looked for when it is first needed, once."""

import pickle

import pytest

from helmsman.schemas.errors import InfeasibleError, UsageError


class LargestBatchSearch:
    """A search for the largest batch that counts its calls."""

    def __init__(self, most: int) -> None:
        self.most, self.calls = most, 0

    def __call__(self) -> int:
        self.calls += 1
        return self.most


def test_a_refusal_that_nobody_shows_looks_for_nothing() -> None:
    search = LargestBatchSearch(7)
    error = InfeasibleError("too large", remedy="3 GB more would do", lacks={"vram": 3}, largest=search)
    assert error.lacks == {"vram": 3} and search.calls == 0
    assert error.remedy == "3 GB more would do, or batches of at most 7" == error.remedy
    assert str(error) == "too large; 3 GB more would do, or batches of at most 7"
    assert error.largest_batch == 7 and search.calls == 1


@pytest.mark.parametrize(
    ("remedy", "most", "said"), [("less", 0, "less"), (None, 2, "batches of at most 2"), (None, 0, None)]
)
def test_batches_are_named_where_some_would_fit(remedy: str | None, most: int, said: str | None) -> None:
    assert InfeasibleError("too large", remedy=remedy, largest=LargestBatchSearch(most)).remedy == said


def test_a_remedy_that_is_put_in_its_place_is_all_there_is() -> None:
    error = InfeasibleError("too large", remedy="less", largest=LargestBatchSearch(3))
    error.remedy = f"a smaller model; else {error.remedy}"
    assert error.remedy == "a smaller model; else less, or batches of at most 3"


@pytest.mark.parametrize("failure", [MemoryError(), UsageError("no such thing")])
def test_a_search_that_fails_leaves_the_refusal(failure: Exception) -> None:
    def search() -> int:
        raise failure

    error = InfeasibleError("too large", remedy="less", largest=search)
    assert error.remedy == "less" and error.largest_batch is None


def test_another_process_gets_what_was_found() -> None:
    error = InfeasibleError("too large", field="batch", value=9, remedy="less", lacks={"vram": 3}, largest=lambda: 4)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.lacks == error.lacks and again.largest_batch == 4
    assert again.exit_code == 3
