"""Pages of a cache: which are resident, at home, streamed and evicted; against a cache that is written row by row."""

from math import ceil
from random import Random

import pytest

from helmsman.scheduler.pages import Advance, PageTable, Paging

TIMED, NIGHTLY = 200, 10_000


def random_paging(random: Random) -> Paging:
    page = random.choice((1, 2, 3, 5, 8, 32))
    window = page * random.randint(2, 6)
    return Paging(page, window, random.randint(page, window - 1))


class Rows:
    """A ring and a home that hold which position was written where."""

    def __init__(self, paging: Paging, capacity: int) -> None:
        self.paging = paging
        self.ring: list[int | None] = [None] * paging.window
        self.home: list[int | None] = [None] * (ceil(capacity / paging.page) * paging.page)

    def check(self, step: Advance) -> None:
        """One pass: rows are written, pages and runs are read, and copies home arrive when all of it is done."""
        leaving = [(page, run, self.ring[run.row : run.row + run.count]) for page, run in step.evicted]
        for run in step.written:
            self.ring[run.row : run.row + run.count] = range(run.position, run.position + run.count)
        read = [self.home[i] for page in step.streamed for i in self._of(page)]
        for run in step.resident:
            assert run.row + run.count <= self.paging.window
            read += self.ring[run.row : run.row + run.count]
        assert read == list(range(step.context)), "attention reads every position once, in order"
        for page, run, before in leaving:
            assert before == self.ring[run.row : run.row + run.count] == list(self._of(page)), "full, and left alone"
            self.home[page * self.paging.page : (page + 1) * self.paging.page] = before

    def _of(self, page: int) -> range:
        return range(page * self.paging.page, (page + 1) * self.paging.page)


def play(seed: int) -> int:
    """A random schedule of several sequences that come, grow and go; pages that were evicted."""
    random = Random(seed)
    paging, capacity = random_paging(random), random.randint(1, 400)
    table, rows, evicted = PageTable(paging, capacity), dict[int, Rows](), 0
    for _ in range(random.randint(1, 40)):
        sequence = random.randrange(4)
        if sequence not in rows:
            table.add(sequence)
            rows[sequence] = Rows(paging, capacity)
        elif random.random() < 0.1:
            table.free(sequence)
            del rows[sequence]
            continue
        most = min(paging.most_new, capacity - table.cached(sequence))
        if most:
            step = table.advance(sequence, random.choice((1, most, random.randint(1, most))))
            assert len(step.resident) <= 2 and len(step.written) <= 2
            rows[sequence].check(step)
            evicted += len(step.evicted)
        table.check_integrity()
        assert set(table.sequences) == set(rows)
    return evicted


def test_random_schedules_read_every_position_once() -> None:
    assert sum(play(seed) for seed in range(TIMED)) > TIMED


@pytest.mark.nightly
def test_ten_thousand_random_schedules() -> None:
    assert sum(play(seed) for seed in range(TIMED, TIMED + NIGHTLY)) > NIGHTLY


def test_the_closed_form_is_what_passes_add_up_to() -> None:
    for seed in range(15):
        paging = random_paging(Random(seed))
        table = PageTable(paging, 500)
        table.add(0)
        for cached in range(1, 501):
            step = table.advance(0, 1)
            assert step.past == cached - 1 and step.context == cached
            assert table.evicted(0) == paging.evicted(cached) == max(0, ceil((cached - paging.high) / paging.page))
            assert cached - paging.evicted(cached) * paging.page <= paging.high
            assert paging.evicted(cached) <= cached // paging.page, "the page being filled stays"


def test_while_all_fits_the_cache_is_one_run_from_row_0() -> None:
    paging = Paging(page=32, window=256, high=204)
    for past in range(205):
        step = paging.advance(past, 1)
        assert not step.streamed and [(run.position, run.row, run.count) for run in step.resident] == [(0, 0, past + 1)]
    assert paging.advance(204, 1).evicted[0][0] == 0
    assert paging.advance(205, 1).streamed == range(1)


def test_evicted_pages_are_read_in_the_window_once_more() -> None:
    step = Paging(page=4, window=12, high=8).advance(8, 4)
    assert step.streamed == range(0) and [page for page, _ in step.evicted] == [0]
    assert sum(run.count for run in step.resident) == 12


@pytest.mark.parametrize(("page", "window", "high"), [(4, 10, 8), (4, 8, 3), (4, 8, 8)])
def test_windows_without_room_are_refused(page: int, window: int, high: int) -> None:
    with pytest.raises(AssertionError):
        Paging(page, window, high)


def test_misuse_and_corruption_are_found() -> None:
    table = PageTable(Paging(page=2, window=6, high=4), 20)
    table.add(7)
    with pytest.raises(AssertionError, match="has a place"):
        table.add(7)
    with pytest.raises(AssertionError, match="fits beside"):
        table.advance(7, 3)
    for _ in range(10):
        table.advance(7, 2)
    with pytest.raises(AssertionError, match="home has 20"):
        table.advance(7, 1)
    assert table.slots(7) == {page % 3: page for page in range(table.evicted(7), 10)}
    table._slots[7].popitem()
    with pytest.raises(AssertionError, match="resident"):
        table.check_integrity()
    table.free(7)
    table.check_integrity()
    assert table.sequences == ()
