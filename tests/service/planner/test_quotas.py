"""Quotas and caches: counted, bounded, forgotten."""

import asyncio
import contextlib
import os
import sqlite3
from importlib.metadata import EntryPoint
from pathlib import Path
from random import Random

import pytest

from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.answers import keys
from helmsman.service.planner.answers.answer_table import AnswerTable
from helmsman.service.planner.answers.cache import AnswerCache
from helmsman.service.planner.answers.keys import Keys, code_digest
from helmsman.service.planner.answers.memory_cache import MemoryCache
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.options import ClientLimits
from helmsman.service.planner.quotas import Quotas


def test_requests_come_back_with_time() -> None:
    now = [0.0]
    quotas = Quotas(ClientLimits(rate=2.0, burst=3.0), lambda: now[0])
    for _ in range(3):
        quotas.request("me")
    with pytest.raises(RefusedError) as caught:
        quotas.request("me")
    assert (caught.value.status, caught.value.retry_s) == (429, 1)
    quotas.request("another")
    now[0] = 0.5
    quotas.request("me")
    with pytest.raises(RefusedError):
        quotas.request("me")


def test_points_that_nothing_came_of_are_given_back() -> None:
    now = [0.0]
    quotas = Quotas(ClientLimits(points=10), lambda: now[0])
    quotas.points("me", 8).give_back()
    charge = quotas.points("me", 10)
    now[0] = 86400.0
    quotas.points("me", 10)
    charge.give_back()
    with pytest.raises(RefusedError):
        quotas.points("me", 1)  # they were those of another day


def test_points_are_of_a_day() -> None:
    now = [0.0]
    quotas = Quotas(ClientLimits(points=10), lambda: now[0])
    quotas.points("me", 8)
    with pytest.raises(RefusedError) as caught:
        quotas.points("me", 3)
    assert caught.value.retry_s == 86400 and "2 of 10" in caught.value.message
    quotas.points("me", 2)
    now[0] = 86400.0
    quotas.points("me", 10)


def test_strangers_do_not_fill_the_memory() -> None:
    quotas = Quotas(ClientLimits(), lambda: 0.0)
    for number in range(20_000):
        quotas.request(str(number))
    assert len(quotas._accounts) == 10_000


def test_memory_holds_so_many_bytes_and_the_last_used() -> None:
    cache = MemoryCache(12_000)
    for key in "abc":
        cache.put(key, WorkerAnswer(bytes(2400)))
    assert cache.get("a") is not None
    for key in "de":
        cache.put(key, WorkerAnswer(bytes(2400)))
    assert [key for key in "abcde" if cache.get(key)] == ["a", "c", "d", "e"] and cache.size <= 12_000
    cache.put("large", WorkerAnswer(bytes(5000)))
    assert cache.get("large") is None
    cache.put("a", WorkerAnswer(b"new"))
    answer = cache.get("a")
    assert answer is not None and answer.content == b"new"


def test_the_table_holds_so_many_bytes_and_the_last_used(tmp_path: Path) -> None:
    table = AnswerTable(tmp_path / "answers.sqlite", 40_000)
    noise = [Random(number).randbytes(10_000) for number in range(8)]
    for number, content in enumerate(noise):
        table.put([(str(number), WorkerAnswer(content, 422))])
        assert table.get("0") == WorkerAnswer(noise[0], 422)
    assert table.get("7") == WorkerAnswer(noise[7], 422) and len(table.known) < 8
    known = set(table.known)
    table.close()
    again = AnswerTable(tmp_path / "answers.sqlite", 40_000)
    assert again.known == known and again.get("0") == WorkerAnswer(noise[0], 422)
    again.close()


def test_the_table_holds_so_many_rows(tmp_path: Path) -> None:
    table = AnswerTable(tmp_path / "answers.sqlite", 2**20, 20)
    for number in range(50):
        table.put([(str(number), WorkerAnswer(b""))])
        assert len(table.known) <= 20
    assert "49" in table.known and "0" not in table.known
    table.close()
    small = AnswerTable(tmp_path / "small.sqlite", 5000)
    for number in range(50):
        small.put([(str(number), WorkerAnswer(b""))])
    assert len(small.known) <= 12, "a row takes room, however short its answer"
    small.close()


def test_a_table_that_cannot_be_opened_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "answers.sqlite"
    place.mkdir()
    table = AnswerTable(place, 40_000)
    table.put([("k", WorkerAnswer(b"answer"))])
    assert table.get("k") is None and not table.known and place.is_dir()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    table.close()


def test_a_table_is_made_anew_only_where_it_is_damaged(tmp_path: Path) -> None:
    place = tmp_path / "answers.sqlite"
    with contextlib.closing(AnswerTable(place, 40_000)) as table:
        table.put([("k", WorkerAnswer(b"answer"))])
    with contextlib.closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with contextlib.closing(AnswerTable(place, 40_000, busy_s=0.0)) as table:
            assert not table.known
        other.execute("ROLLBACK")
    with contextlib.closing(AnswerTable(place, 40_000)) as table:
        assert table.get("k") == WorkerAnswer(b"answer")
    place.write_bytes(b"no table" * 1000)
    with contextlib.closing(AnswerTable(place, 40_000)) as table:
        table.put([("k", WorkerAnswer(b"answer"))])
        assert table.get("k") == WorkerAnswer(b"answer")


def test_what_costs_nothing_is_not_written(tmp_path: Path) -> None:
    """The answer to a check depends on limits of the server, and says how many points a job takes."""
    place = tmp_path / "answers.sqlite"

    async def kept() -> None:
        cache = AnswerCache(MemoryCache(2**20), AnswerTable(place, 2**20))
        for kind in ("plan", "check-study", "machine"):
            cache.keep(kind, kind, WorkerAnswer(b"too many", 422, points=7))
        checked = await cache.get("check-study")
        assert checked is not None and checked.points == 7
        await cache.close()

    asyncio.run(kept())
    with contextlib.closing(AnswerTable(place, 2**20)) as table:
        assert table.known == {"plan"}


def test_a_key_changes_with_the_code(tmp_path: Path) -> None:
    source = tmp_path / "room" / "cost.py"
    source.parent.mkdir()
    source.write_text("a = 1\n")
    os.utime(source, ns=(1, 1))
    before = code_digest([tmp_path])
    (tmp_path / "notes.txt").write_text("no code")
    assert code_digest([tmp_path]) == before
    os.utime(source, ns=(1, 2))
    changed = code_digest([tmp_path])
    source.rename(source.with_name("costs.py"))
    assert len({before, changed, code_digest([tmp_path])}) == 3


def test_a_key_changes_with_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Keys.here()
    assert Keys.here() == before
    monkeypatch.setattr(keys, "version", lambda package: "99.0" if package == "highspy" else "1.0")
    assert Keys.here().key("plan", b"{}") != before.key("plan", b"{}")


def test_a_key_changes_with_what_other_packages_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question about a strategy that is not there is refused, and the refusal kept until there is one."""
    before = Keys.here()
    source = tmp_path / "their_strategy.py"
    source.write_text("STRATEGY = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("theirs", "their_strategy:STRATEGY", "helmsman.strategies")
    monkeypatch.setattr(keys, "added", lambda group: {"theirs": point} if group == point.group else {})
    there = Keys.here()
    assert Keys.here() == there
    source.write_text("STRATEGY = 12\n")
    assert len({one.key("plan", b"{}") for one in (before, there, Keys.here())}) == 3
