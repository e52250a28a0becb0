"""Servers that are killed lose no job, complete none twice, and cost a job nothing unless its process dies too."""

import contextlib
import json
import os
import signal
import sqlite3
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.planner_clients import WebServer
from web_service import QUESTION, WebPort, until, web_site

from helmsman.service.planner.jobs.database import JobDatabase, JobRow, requeue

QUEUED = JobRow("a" * 32, "127.0.0.1", "simulation", "k", 1, "queued", 0, 1.0, None, None, None, {})


def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    """Jobs that were taken in are done after the next start, once, and no worker of the first outlives it."""
    with contextlib.ExitStack() as stack:
        server = WebServer(tmp_path, "-q", "--jobs", "1").wait()
        stack.callback(server.kill)
        places = [_taken(server.port, seed) for seed in range(2)]
        workers = server.tree()[1:]
        server.kill()
        again = WebServer(tmp_path, "-q", "--jobs", "1").wait()
        stack.callback(again.stop)
        assert again.recovered >= 1
        assert not [pid for pid in workers if _runs(pid)]
        for place in places:
            assert WebPort(again.port).ended(place)["state"] == "done"
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as connection:
        assert {row[0] for row in connection.execute("SELECT completions FROM jobs")} == {1}


@pytest.mark.nightly
@pytest.mark.parametrize("alone", [False, True], ids=["with its workers", "alone"])
def test_an_attempt_counts_if_the_process_at_it_dies_with_its_server(tmp_path: Path, alone: bool) -> None:
    """A job that takes all memory of a container ends everything in it at once; a server that is killed leaves its
    workers to say that they lived. Every day `test_a_killed_server_loses_nothing` kills a server with jobs, and the
    tests below count attempts in the database."""
    study = {"models": ["Qwen3-0.6B"], "machines": ["rtx4060-laptop"], "strategies": ["layer-split"], "sensitivity": 0}
    with contextlib.ExitStack() as stack:
        server = WebServer(tmp_path, "-q", "--jobs", "1").wait()
        stack.callback(server.kill)
        port = WebPort(server.port)
        place = port.post("/v1/studies", {**study, "prompt_tokens": list(range(1, 3000))}).headers["location"]
        assert port.until(place, lambda job: job["done"] > 0)["attempts"] == 1
        tree = server.tree()
        if not alone:
            for pid in tree:
                os.kill(pid, signal.SIGSTOP)
            for pid in tree[1:]:
                os.kill(pid, signal.SIGKILL)
        server.process.send_signal(signal.SIGKILL)
        until(lambda: not any(_runs(pid) for pid in tree))
    database = JobDatabase(tmp_path / "jobs.sqlite")
    (row,) = database.of("127.0.0.1", 9)
    assert (row.state, row.attempts) == (("queued", 0) if alone else ("running", 1))
    assert database.recover() == [row.id]
    database.close()


def test_a_job_whose_process_was_killed_a_hundred_times_has_failed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    database = JobDatabase(tmp_path / "store" / "jobs.sqlite")
    lines = (("a", 100), ("b", 99))
    question = json.dumps({"schema": "helm.simulation-question/1", "question": QUESTION}).encode()
    for letter, attempts in lines:
        database.add(replace(QUEUED, id=letter * 32, key=letter * 64, attempts=attempts), question)
    database.close()
    with web_site(tmp_path / "store") as site:
        failed, done = (site.ended(f"/v1/jobs/{letter * 32}") for letter, _ in lines)
    assert failed["state"] == "failed" and "100 times" in failed["error"]["detail"], failed
    assert (done["state"], done["attempts"]) == ("done", 100)


def test_a_worker_that_outlives_its_server_queues_its_jobs_once(tmp_path: Path) -> None:
    """Several workers may have been at a question, one after the other, and each says so; no other job is touched."""
    place = tmp_path / "jobs.sqlite"
    requeue(place, "k")
    assert not place.exists(), "a store that is gone is not made again"
    database = JobDatabase(place)
    for letter, key in (("a", "k"), ("b", "k"), ("c", "l"), ("d", "k")):
        database.add(replace(QUEUED, id=letter * 32, key=key), b"")
    for letter in "abc":
        database.run(letter * 32, 7, time.time())
    database.complete("b" * 32, {}, 0, time.time())
    for _ in range(2):
        requeue(place, "k")
    rows = [database.job(letter * 32) for letter in "abcd"]
    assert [(row.state, row.attempts) for row in rows if row] == [
        ("queued", 6), ("done", 7), ("running", 7), ("queued", 0)
    ]  # fmt: skip
    database.close()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone chooses by a score that a process may raise itself")
def test_memory_that_runs_out_ends_a_worker_not_its_server(tmp_path: Path) -> None:
    """Linux ends the process with the highest score: the server then says which job it was."""
    with web_site(tmp_path) as site:
        site.post("/v1/plans", QUESTION)
        (worker,) = site.service.pool._idle["quick"]
        scores = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (worker.process.pid, os.getpid())]
    assert scores[0] > scores[1]


def _taken(port: int, seed: int) -> str:
    serving = {"requests": "synthetic:n=60,input=64,output=16,rate=2", "seed": seed}
    question = {**QUESTION, "model": "opt-125m"}
    return WebPort(port).post("/v1/simulations", {"question": question, "serving": serving}).headers["location"]


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
