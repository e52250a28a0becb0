"""Quotas and caches: counted, bounded, forgotten."""

from pathlib import Path
from random import Random

import pytest

from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.answers.answer_table import AnswerTable
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
