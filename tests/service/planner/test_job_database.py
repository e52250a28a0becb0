"""The database of jobs: a job ends once, and what is kept of those that have ended is bounded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helmsman.service.planner.jobs.database import DamagedStoreError, JobDatabase, JobRow

QUEUED = JobRow("a" * 32, "me", "simulation", "k", 1, "queued", 0, 1.0, None, None, None, {})


@pytest.fixture
def database(tmp_path: Path) -> Any:
    opened = JobDatabase(tmp_path / "jobs.sqlite")
    yield opened
    opened.close()


def test_a_job_is_completed_once(database: JobDatabase) -> None:
    database.add(QUEUED, b"{}")
    assert not database.complete(QUEUED.id, {}, 0, 2.0), "it does not run"
    assert database.run(QUEUED.id, 1, 2.0)
    assert database.complete(QUEUED.id, {"application/json": "d"}, 5, 3.0)
    assert not database.complete(QUEUED.id, {}, 0, 4.0)
    assert not database.fail(QUEUED.id, "{}", 4.0) and not database.cancel(QUEUED.id, 4.0)
    assert not database.run(QUEUED.id, 2, 4.0) and not database.queue(QUEUED.id, 2)
    row = database.job(QUEUED.id)
    assert row is not None and (row.state, row.attempts, row.ended) == ("done", 1, 3.0)
    assert database.answered("k") == row and database.referenced() == {"d"}


def test_what_ran_is_queued_again(database: JobDatabase) -> None:
    for letter, created in (("a", 2.0), ("b", 1.0), ("c", 3.0)):
        database.add(replace(QUEUED, id=letter * 32, key=letter, created=created), letter.encode())
    database.run("a" * 32, 1, 4.0)
    database.cancel("c" * 32, 4.0)
    assert database.recover() == ["b" * 32, "a" * 32]
    assert database.question("b") == b"b"
    with pytest.raises(DamagedStoreError, match="question of a job"):
        database.question("c")


def test_old_jobs_are_forgotten_with_their_results(database: JobDatabase) -> None:
    for number in range(5):
        job = f"{number}" * 32
        database.add(replace(QUEUED, id=job, key=job), b"")
        database.run(job, 1, 1.0)
        database.complete(job, {"application/json": f"d{number}"}, 10, 10.0 + number)
    assert database.expire(before=11.0, most_jobs=100, most_bytes=1000) == {"d0"}
    assert database.expire(before=0.0, most_jobs=3, most_bytes=1000) == {"d1"}
    assert database.expire(before=0.0, most_jobs=100, most_bytes=15) == {"d2", "d3"}
    assert database.referenced() == {"d4"}


def test_results_that_many_jobs_have_count_once(database: JobDatabase) -> None:
    """A question asked again has the files of the first: they stay as long as there is room, and count when it goes."""
    same = {"application/json": "d"}
    for number, results in enumerate((same, {"application/json": "e"}, same, same)):
        ended = replace(QUEUED, id=f"{number}" * 32, state="done", ended=10.0 + number, results=results, bytes=10)
        database.add(ended, b"")
    assert database.expire(before=0.0, most_jobs=100, most_bytes=20) == set()
    assert len(database.of("me", 10)) == 4
    assert database.expire(before=0.0, most_jobs=100, most_bytes=10) == {"e"}
    assert database.expire(before=0.0, most_jobs=100, most_bytes=9) == {"d"}


def test_a_job_that_has_ended_keeps_no_question(database: JobDatabase) -> None:
    for letter in "abcd":
        database.add(replace(QUEUED, id=letter * 32), b"question")
        database.run(letter * 32, 1, 1.0)
    database.complete("a" * 32, {}, 5, 2.0)
    database.fail("b" * 32, "{...}", 2.0)
    database.cancel("c" * 32, 2.0)
    kept = "SELECT question FROM jobs ORDER BY id"
    assert database._rows(kept) == [(b"",), (b"",), (b"",), (b"question",)]
    assert [row.bytes for row in sorted(database.of("me", 9), key=lambda row: row.id)] == [5, 5, 0, 0]
    database._change("UPDATE jobs SET question = x'00' WHERE state = 'done'")
    database.recover()
    assert database._rows(kept)[0] == (b"",), "one that an earlier version has left"
