"""Jobs that wait: queued whenever no process is at them, without their questions in memory, with attempts that count
kills alone, and ended when they are cancelled, whatever the store says."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from web_service import OPTIONS, QUESTION, WebSite, web_site

from helmsman.service.planner.jobs import book
from helmsman.service.planner.jobs.database import JobDatabase
from helmsman.service.planner.jobs.live_job import LiveJob
from helmsman.service.planner.problems import UnwritableStoreError


def long(seed: int) -> dict[str, Any]:
    """A simulation that takes longer than any test."""
    serving = {"slo": "ttft=1s", "requests": "synthetic:n=50000,rate=9", "seed": seed}
    return {"question": QUESTION, "serving": serving, "capacity": True, "seeds": 50}


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + 30
    while not (value := holds()):
        assert time.monotonic() < end
        time.sleep(0.002)
    return value


def live_job(site: WebSite, place: str) -> LiveJob:
    return site.service.desk._live[place.rpartition("/")[2]]


def worker_of(site: WebSite, place: str) -> Any:
    """The process that is at a job, once one is."""

    def begun() -> Any:
        computation = live_job(site, place).computation
        worker = computation and computation.seat.worker
        return worker if worker and worker.begun else None

    return until(begun)


def slow(prompt: int) -> dict[str, Any]:
    """A comparison that takes longer than any test."""
    return {"question": {**QUESTION, "model": "Qwen3-8B", "strategy": "best", "prompt_tokens": prompt}, "most": 64}


def test_a_job_whose_computation_is_displaced_is_queued_again(tmp_path: Path) -> None:
    """A question keeps its quick place for a moment; jobs have no room for it, and it waits until they have."""
    with web_site(tmp_path, replace(OPTIONS, patience_s=0.05, crowded_s=0.3)) as site:
        ahead = [
            site.post("/v1/simulations", long(1)).headers["location"],
            site.post("/v1/comparisons", slow(100)).headers["location"],
        ]
        for place in ahead:
            site.until(place, lambda job: job["state"] == "running")
        place = site.post("/v1/comparisons", slow(200)).headers["location"]
        states = [site.until(place, lambda job: job["state"] == "running")]
        states.append(site.until(place, lambda job: job["state"] == "queued"))
        assert [job["attempts"] for job in states] == [1, 0] and "started" not in states[1]
        listed = {job["id"]: job["state"] for job in site.get("/v1/jobs").document["jobs"]}
        assert listed[states[1]["id"]] == "queued" and site.service.desk.running() == 2
        assert "queued" in site.get(f"{place}/result").document["detail"]
        for one in ahead:
            site.ask("DELETE", one)
        assert site.until(place, lambda job: job["state"] == "running")["attempts"] == 1
        assert site.ask("DELETE", place).document["state"] == "cancelled"


def test_a_job_whose_process_is_killed_waits_and_runs_again(tmp_path: Path) -> None:
    with web_site(tmp_path) as site:
        place = site.post("/v1/simulations", long(1)).headers["location"]
        worker_of(site, place).process.kill()
        again = site.until(place, lambda job: job["state"] == "running" and job["attempts"] == 2)
        assert again["started"] >= site.get(place).document["created"]
        site.ask("DELETE", place)


def test_a_server_that_ends_as_it_should_counts_for_no_attempt(tmp_path: Path) -> None:
    for _ in range(3):
        with web_site(tmp_path) as site:
            jobs = site.get("/v1/jobs").document["jobs"] or [site.post("/v1/simulations", long(1)).document]
            place = jobs[0]["links"]["self"]
            worker_of(site, place)
            assert site.until(place, lambda job: job["state"] == "running")["attempts"] == 1
    database = JobDatabase(tmp_path / "jobs.sqlite")
    (row,) = database.of("127.0.0.1", 9)
    assert (row.state, row.attempts, row.started) == ("queued", 0, None)
    database.run(row.id, 1, 1.0)
    database.close()
    with web_site(tmp_path) as site:
        worker_of(site, place)
        assert site.until(place, lambda job: job["state"] == "running")["attempts"] == 2, "that one was killed"
        site.ask("DELETE", place)


def test_questions_of_jobs_are_not_held_in_memory(tmp_path: Path) -> None:
    rows = [{"arrival": number / 100, "prompt_tokens": 32, "output_tokens": 64} for number in range(2000)]
    with web_site(tmp_path) as site:
        simulations = [{**long(seed), "serving": {**long(seed)["serving"], "requests": rows}} for seed in range(3)]
        places = [site.post("/v1/simulations", simulation).headers["location"] for simulation in simulations]
        worker_of(site, places[0])
        assert site.service.computations.under_way == 3 and site.service.computations.held() == 0
        for place in places:
            assert all(not isinstance(work.question, bytes) for work in live_job(site, place).computation.waiting)
            site.ask("DELETE", place)
        assert site.job("/v1/simulations", {"question": QUESTION})["state"] == "done", "it is read when it starts"


def test_a_job_of_another_with_the_same_question_reads_its_own(tmp_path: Path) -> None:
    """Both wait for one computation, and the first is cancelled before that has begun."""
    with web_site(tmp_path) as site:
        ahead = site.post("/v1/simulations", long(1)).headers["location"]
        worker_of(site, ahead)
        first, second = (site.post("/v1/simulations", {"question": QUESTION}).headers["location"] for _ in range(2))
        assert live_job(site, first).computation is live_job(site, second).computation
        site.ask("DELETE", first)
        site.ask("DELETE", ahead)
        assert site.ended(second)["state"] == "done" and site.get(first).document["state"] == "cancelled"


def full(*_: Any) -> int:
    raise UnwritableStoreError("the store cannot be written: database or disk is full", remedy="free some space")


def test_a_job_is_ended_where_the_store_cannot_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "_RETRY_S", 0.01)
    with web_site(tmp_path) as site:
        place = site.post("/v1/simulations", long(1)).headers["location"]
        worker_of(site, place)
        with monkeypatch.context() as patch:
            patch.setattr(site.service.desk._database, "_change", full)
            refused = site.ask("DELETE", place)
            assert (refused.status, refused.document["code"]) == (507, "unwritable-store")
            assert "computation is ended" in refused.document["detail"] and "again" in refused.document["detail"]
            until(lambda: site.service.pool.killed == 1 and not site.service.computations.under_way)
            assert site.get(place).document["state"] == "cancelled"
            assert site.service.desk.unfinished() == 0
            assert site.ask("DELETE", place).status == 507
        until(lambda: not site.service.desk._live)
        assert site.ask("DELETE", place).document["state"] == "cancelled"
    database = JobDatabase(tmp_path / "jobs.sqlite")
    assert [row.state for row in database.of("127.0.0.1", 9)] == ["cancelled"] and database.recover() == []
    database.close()


def test_what_was_cancelled_on_a_full_disk_is_recorded_when_the_server_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_site(tmp_path) as site:
        place = site.post("/v1/simulations", long(1)).headers["location"]
        worker_of(site, place)
        with monkeypatch.context() as patch:
            patch.setattr(site.service.desk._database, "_change", full)
            assert site.ask("DELETE", place).status == 507
    database = JobDatabase(tmp_path / "jobs.sqlite")
    assert [row.state for row in database.of("127.0.0.1", 9)] == ["cancelled"]
    database.close()
