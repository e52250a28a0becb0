"""The store of jobs: held by one server, outliving those that are killed, and clear about what is wrong with it."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from web_service import OPTIONS, QUESTION, web_site

from helmsman.cli.web import main
from helmsman.schemas.errors import BadInputError, HelmError
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.jobs.database import DamagedStoreError, JobDatabase, JobRow
from helmsman.service.planner.jobs.store import StorePlaces, held_store
from helmsman.service.planner.options import JobLimits
from helmsman.service.planner.problems import UnwritableStoreError

QUEUED = JobRow("a" * 32, "me", "simulation", "k", 1, "queued", 0, 1.0, None, None, None, {})


@pytest.mark.parametrize("damage", ["head", "middle", "text"])
def test_a_damaged_store_is_named_and_left_as_it_is(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "jobs.sqlite"
    opened = JobDatabase(place)
    for number in range(300):
        opened.add(replace(QUEUED, id=f"{number:032x}"), b"x" * 300)
    opened.close()
    content = bytearray(place.read_bytes())
    if damage == "head":
        content[:100] = bytes(100)
    elif damage == "middle":
        content[5000:40_000] = os.urandom(35_000)
    else:
        content[:] = b"no database"
    place.write_bytes(content)
    assert main(["--port", "0", "--store", str(tmp_path)]) == 5
    told = capsys.readouterr().err
    assert "the store is damaged" in told and told.count("\n") == 1 and "--store" in told
    assert place.read_bytes() == content


def test_a_store_of_a_later_version_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(BadInputError, match="later version"):
        JobDatabase(tmp_path / "jobs.sqlite")


def test_one_server_has_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        held_store(tmp_path),
        pytest.raises(HelmError, match="another server has this store"),
        held_store(tmp_path, 0.1),
    ):
        pass
    with held_store(tmp_path, 0.1):
        pass


def test_a_worker_that_lives_holds_the_store(tmp_path: Path) -> None:
    """Until it has seen that its server was killed, nobody else begins its job."""
    with held_store(tmp_path) as (_, lock):
        code = "import sys, time; print(flush=True); time.sleep(60)"
        worker = subprocess.Popen([sys.executable, "-c", code], pass_fds=[lock], stdout=subprocess.PIPE)
    try:
        assert worker.stdout is not None and worker.stdout.readline()
        with pytest.raises(HelmError, match="another server"), held_store(tmp_path, 0.1):
            pass
    finally:
        worker.kill()
        worker.communicate()
    with held_store(tmp_path):
        pass


@pytest.mark.parametrize("place", ["/proc/none", "/dev/null/x"])
def test_a_store_that_cannot_be_is_one_line(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", "0", "--store", place]) in (2, 6)
    assert capsys.readouterr().err.count("\n") == 1


def test_an_occupied_port_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with web_site(tmp_path / "one") as site:
        assert main(["--port", str(site.port), "--store", str(tmp_path / "other")]) == 2
    assert "the port is occupied" in capsys.readouterr().err


def test_without_room_there_is_no_job_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with web_site(tmp_path) as site:
        kept = site.job("/v1/simulations", {"question": QUESTION})
        database = site.service.desk._database

        def full(*_: Any) -> int:
            raise UnwritableStoreError("the store cannot be written: database or disk is full", remedy="free some")

        with monkeypatch.context() as patch:
            patch.setattr(database, "_change", full)
            refused = site.post("/v1/simulations", {"question": {**QUESTION, "batch": 2}})
            assert (refused.status, refused.document["code"]) == (507, "unwritable-store")
            assert site.post("/v1/plans", QUESTION).status == 200, "what needs no store is answered"
        assert site.get(kept["links"]["result"]).status == 200
        assert site.job("/v1/simulations", {"question": {**QUESTION, "batch": 2}})["state"] == "done"


def test_a_result_that_finds_no_room_fails_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from helmsman.service.planner.jobs import book

    def full(*_: Any) -> str:
        raise UnwritableStoreError("no room on the disk", remedy="free some space")

    monkeypatch.setattr(book, "store_result", full)
    monkeypatch.setattr(book, "_RETRY_S", 0.001)
    with web_site(tmp_path, replace(OPTIONS, patience_s=0.0)) as site:
        taken = site.post("/v1/plans", QUESTION)
        job = site.ended(taken.headers["location"])
        assert job["state"] == "failed" and job["error"]["code"] == "unwritable-store"


def test_a_mistake_while_a_result_is_kept_fails_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with web_site(tmp_path, replace(OPTIONS, patience_s=0.0)) as site:
        book = site.service.desk._book

        async def lost(_: Any) -> Any:
            raise RuntimeError("a mistake")

        with monkeypatch.context() as patch:
            patch.setattr(book, "_kept", lost)
            job = site.ended(site.post("/v1/plans", QUESTION).headers["location"])
        assert (job["state"], job["error"]["code"]) == ("failed", "internal")
        gone = WorkerAnswer(b"", files=(("application/json", "0" * 64),))
        with pytest.raises(UnwritableStoreError, match="cannot be read"):
            asyncio.run(book._kept(gone))


def test_housekeeping_says_what_keeps_it_from_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with web_site(tmp_path) as site:
        desk = site.service.desk

        def expired() -> None:
            asyncio.run_coroutine_threadsafe(desk.expire(), site.loop).result(60)

        for error in (ValueError("a mistake"), DamagedStoreError("the store is damaged: malformed")):
            with monkeypatch.context() as patch:
                patch.setattr(desk._database, "expire", Mock(side_effect=error))
                with pytest.raises(DamagedStoreError) if isinstance(error, HelmError) else contextlib.nullcontext():
                    expired()
        expired()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_store_that_is_damaged_meanwhile_is_a_problem_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with web_site(tmp_path) as site:

        def damaged(*_: Any) -> list[Any]:
            raise DamagedStoreError("the store is damaged: malformed", file=str(tmp_path), remedy="move it away")

        monkeypatch.setattr(site.service.desk._database, "_rows", damaged)
        reply = site.get("/v1/jobs")
        assert (reply.status, reply.document["code"]) == (503, "damaged-store")
        assert str(tmp_path) not in reply.body.decode()


def test_a_damaged_table_of_answers_is_made_anew(tmp_path: Path) -> None:
    places = StorePlaces(tmp_path)
    with web_site(tmp_path) as site:
        first = site.post("/v1/plans", QUESTION)
    with web_site(tmp_path) as site:
        assert site.service.cache.memory.size == 0
        assert site.post("/v1/plans", QUESTION).body == first.body
        assert site.service.pool._tasks.total() == 0, "it was on the disk"
    places.answers.write_bytes(b"no database" * 1000)
    with web_site(tmp_path) as site:
        assert site.post("/v1/plans", QUESTION).body == first.body


def test_results_of_a_job_that_cannot_be_read_are_a_damaged_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = JobDatabase(tmp_path / "jobs.sqlite")
    database.add(replace(QUEUED, state="done", ended=1.0), b"")
    database._change("UPDATE jobs SET results = '{'")
    with pytest.raises(DamagedStoreError):
        database.of("me", 1)
    database.close()
    assert main(["--port", "0", "--store", str(tmp_path)]) == 5
    told = capsys.readouterr().err
    assert "the store is damaged" in told and told.count("\n") == 1


def test_results_beyond_what_is_kept_are_gone(tmp_path: Path) -> None:
    with web_site(tmp_path, replace(OPTIONS, jobs=JobLimits(ended=0))) as site:
        job = site.job("/v1/simulations", {"question": QUESTION})
        site.loop.call_soon_threadsafe(lambda: site.loop.create_task(site.service.desk.expire()))
        end = time.monotonic() + 30
        while site.get(job["links"]["self"]).status == 200 and time.monotonic() < end:
            time.sleep(0.005)
        assert site.get(f"{job['links']['self']}/result").status == 404
