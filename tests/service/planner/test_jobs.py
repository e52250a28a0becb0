"""Jobs: taken in, followed, given out, cancelled; each client's own, and as many as it may have."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from together import together
from web_service import OPTIONS, QUESTION, WebSite, until, web_site

from helmsman import library
from helmsman.schemas.job import PlannerJob
from helmsman.schemas.read import parse_document
from helmsman.schemas.simulation_answer import SimulationAnswer
from helmsman.schemas.study_report import StudyReport
from helmsman.service.http.access import Access
from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.jobs.live_job import ENDED
from helmsman.service.planner.options import OPEN_PATHS, ClientLimits
from helmsman.service.planner.problems import UnwritableStoreError

STUDY: dict[str, Any] = {"models": ["Qwen3-0.6B"], "machines": ["rtx4060-laptop"], "strategies": ["layer-split"],
                         "formats": ["f16", "q8_0"], "sensitivity": 0}  # fmt: skip
SERVING = {"requests": "synthetic:n=20,input=64,output=16,rate=2"}
LONG = {"question": QUESTION, "serving": {**SERVING, "slo": "ttft=1s", "requests": "synthetic:n=50000,rate=9"},
        "capacity": True, "seeds": 50}  # fmt: skip
"""A simulation that takes longer than any test."""
SIMULATION = json.dumps({"schema": "helm.simulation-question/1", **LONG}).encode()
OUT_OF_ORDER = [{"arrival": arrival, "prompt_tokens": 32, "output_tokens": 4} for arrival in (2, 1)]
LARGE = {**STUDY, "prompt_tokens": ["16..9000/1"]}
"""A study that takes longer than any test."""


def served(asked: dict[str, Any], **serving: Any) -> dict[str, Any]:
    """Return a simulation of a load with some fields of its own, about which more is `asked`."""
    return {"question": QUESTION, "serving": {**SERVING, **serving}, **asked}


def result(site: WebSite, job: dict[str, Any], **headers: str) -> Any:
    return site.get(job["links"]["result"], **headers)


@contextmanager
def following(site: WebSite, job: dict[str, Any]) -> Iterator[HTTPResponse]:
    """The stream of a job's events, as it comes."""
    with closing(HTTPConnection("127.0.0.1", site.port, timeout=60)) as connection:
        connection.request("GET", job["links"]["events"])
        with connection.getresponse() as response:
            yield response


def next_event(stream: HTTPResponse) -> dict[str, Any]:
    """Return the next event of a stream: its id, its name, and the job as `data`."""
    event: dict[str, Any] = {}
    while "data" not in event:
        line = stream.readline()
        assert line, "the stream ended"
        if not line.startswith(b":") and line.strip():
            name, _, value = line.decode().strip().partition(": ")
            event[name] = value
    return {**event, "data": parse_document(PlannerJob, event["data"].encode(), "job")}


def test_a_replay_is_the_librarys_and_has_a_timeline(site: WebSite) -> None:
    job = site.job("/v1/simulations", {"question": QUESTION, "timeline": True, "steps": 1})
    assert (job["state"], job["kind"], job["attempts"]) == ("done", "simulation", 1)
    answer = parse_document(SimulationAnswer, result(site, job).body, "answer")
    assert answer.replay == library.simulate(library.plan(QUESTION))
    assert answer.timeline is not None and {"ph", "name"} <= set(answer.timeline["traceEvents"][0])


def test_requests_are_served_described_or_listed(site: WebSite) -> None:
    rows = [{"arrival": number / 10, "prompt_tokens": 32, "output_tokens": 4} for number in range(7)]
    for serving, finished in ((SERVING, 20), ({"requests": rows}, 7)):
        job = site.job("/v1/simulations", {"question": QUESTION, "serving": serving})
        answer = parse_document(SimulationAnswer, result(site, job).body, "answer")
        assert answer.serving is not None and answer.serving.counts.finished == finished


def test_a_capacity_that_there_is_not_is_a_job_that_says_so(site: WebSite) -> None:
    simulation = {"question": QUESTION, "serving": {**SERVING, "slo": "ttft=1ms"}, "capacity": True, "seeds": 1}
    job = site.job("/v1/simulations", simulation)
    assert (job["state"], job["error"]["code"], job["error"]["field"]) == ("failed", "infeasible", "slo")


@pytest.mark.nightly
def test_a_capacity_is_the_librarys(site: WebSite) -> None:
    plan = library.plan(QUESTION).plan
    question = {"requests": "synthetic:n=200,input=512,output=16,rate=2", "slo": "ttft=300ms"}
    simulation = {"plan": json.loads(plan.to_json()), "serving": question, "capacity": True, "seeds": 1}
    job = site.job("/v1/simulations", simulation)
    answer = parse_document(SimulationAnswer, result(site, job).body, "answer")
    assert answer.capacity == library.find_capacity(plan, question, 1)


def test_a_study_is_answered_in_json_and_parquet(site: WebSite, tmp_path: Path) -> None:
    job = site.job("/v1/studies", STUDY)
    report = parse_document(StudyReport, result(site, job).body, "report")
    assert [row.format for row in report.rows] == ["f16", "q8_0"] and report.counts == {"fits": 2}
    table = result(site, job, Accept="application/vnd.apache.parquet")
    (tmp_path / "rows.parquet").write_bytes(table.body)
    assert pq.read_table(tmp_path / "rows.parquet").column("format").to_pylist() == ["f16", "q8_0"]
    assert table.headers["etag"] != result(site, job).headers["etag"]
    assert result(site, job, If_None_Match=table.headers["etag"], Accept="application/vnd.apache.parquet").status == 304
    assert result(site, job, Accept="text/html").status == 406
    assert not list((site.store / "work").iterdir())


def test_a_question_that_was_answered_is_done_at_once(site: WebSite) -> None:
    first = site.job("/v1/studies", {**STUDY, "name": "twice"})
    again = site.post("/v1/studies", {**STUDY, "name": "twice"}).document
    assert again["state"] == "done" and again["id"] != first["id"]
    assert result(site, again).body == result(site, first).body


@together(
    ("path", "body", "field"),
    [
        ("/v1/studies", {**STUDY, "models": ["/etc/passwd"]}, "model"),
        ("/v1/studies", {**STUDY, "machines": ["../record.json"]}, "hardware"),
        ("/v1/studies", {**STUDY, "slo": ["ttft=1s"], "serving": {"requests": ["/etc/passwd"]}}, "serving.requests"),
        ("/v1/studies", {**STUDY, "batches": [1, 2, 3], "prompt_tokens": ["1..9000/1"]}, "points"),
        ("/v1/studies", {**STUDY, "options": {"vllm": {"table": "/etc/passwd"}}}, "options.table"),
        ("/v1/studies", {"models": []}, "models"),
        ("/v1/simulations", {"question": QUESTION, "serving": {"requests": "/etc/passwd"}}, "serving.requests"),
        ("/v1/simulations", {}, "question"),
        ("/v1/simulations", {"question": QUESTION, "capacity": True}, "serving"),
        ("/v1/simulations", {"question": {**QUESTION, "model": "/x"}}, "model"),
        ("/v1/simulations", {"question": {**QUESTION, "hardware": "/x"}}, "hardware"),
        ("/v1/simulations", {"question": {**QUESTION, "strategy": "none"}}, "strategy"),
        ("/v1/simulations", {"question": {**QUESTION, "prompt_tokens": 10**6}}, "context"),
        ("/v1/simulations", served({}, requests="synthetic:n=-1"), "requests"),
        ("/v1/simulations", served({}, requests="synthetic:n=100000000000,input=100,output=10,rate=1"), "requests"),
        ("/v1/simulations", served({}, requests=OUT_OF_ORDER), "line 2, timestamp"),
        ("/v1/simulations", served({}, requests=OUT_OF_ORDER[:1], arrivals="poisson"), "rate"),
        ("/v1/simulations", served({}, slo="x"), "slo"),
        ("/v1/simulations", served({}, arrivals="x"), "arrivals"),
        ("/v1/simulations", served({}, think="1s"), "think"),
        ("/v1/simulations", served({}, users=3, rate=2), "rate"),
        ("/v1/simulations", served({}, policy="none"), "policy"),
        ("/v1/simulations", served({}, policy_options={"none": 1}), "policy_options"),
        ("/v1/simulations", served({}, gpu_tokens=1), "gpu_tokens"),
        ("/v1/simulations", served({"capacity": True}), "slo"),
        ("/v1/simulations", served({"users": True}, rate=2, slo="ttft=1s"), "rate"),
        ("/v1/simulations", served({"replicas": True}, replicas=2, slo="ttft=1s"), "replicas"),
        ("/v1/simulations", served({"replicas": True}, requests="synthetic:n=20", slo="ttft=1s"), "rate"),
    ],
)
def test_what_is_no_job_is_refused_at_once(site: WebSite, path: str, body: dict[str, Any], field: str) -> None:
    reply = site.post(path, body)
    assert reply.status in (400, 422) and reply.document["field"] == field, reply


def test_a_check_says_what_the_job_would(site: WebSite) -> None:
    simulation = served({}, requests=OUT_OF_ORDER)
    said = site.post("/v1/simulations", simulation)
    body = json.dumps({"schema": "helm.simulation-question/1", **simulation}).encode()
    submitted = site.service.desk.submit("simulation", "5" * 64, body, "127.0.0.1", 1)
    job = asyncio.run_coroutine_threadsafe(submitted, site.loop).result(60)
    assert said.document == site.ended(job.links.self)["error"]
    assert not list((site.store / "work").iterdir()), "the file of the requests is gone"


def test_without_room_for_listed_requests_there_is_no_job(tmp_path: Path) -> None:
    with web_site(tmp_path) as site:
        (tmp_path / "work").rmdir()
        refused = site.post("/v1/simulations", served({}, requests=OUT_OF_ORDER[:1]))
        assert (refused.status, refused.document["code"]) == (507, "unwritable-store")
        (tmp_path / "work").mkdir()
        assert site.job("/v1/simulations", served({}, requests=OUT_OF_ORDER[:1]))["state"] == "done"


def test_a_job_that_fails_says_why(site: WebSite) -> None:
    job = site.job("/v1/simulations", {"question": {**QUESTION, "model": "Llama-3.1-70B"}})
    assert job["state"] == "failed" and job["error"]["code"] == "infeasible" and job["error"]["lacks"]
    assert site.get(f"{job['links']['self']}/result").status == 409


def test_a_job_is_followed_by_events(site: WebSite) -> None:
    taken = site.post("/v1/studies", LARGE).document
    with following(site, taken) as stream:
        events = [next_event(stream)]
        while events[-1]["event"] != "progress" or events[-1]["data"].total != 2 * 8985:
            events.append(next_event(stream))
        site.ask("DELETE", taken["links"]["self"])
        while events[-1]["data"].state not in ENDED:
            events.append(next_event(stream))
        assert not stream.read().strip(), "the end of a job is the last that is told"
    assert (events[-1]["event"], events[-1]["data"].state) == ("state", "cancelled")
    assert len({event["id"] for event in events}) == len(events)


def test_events_go_on_where_a_client_left_them(site: WebSite) -> None:
    taken = site.job("/v1/studies", {**STUDY, "prompt_tokens": ["16..24/1"]})
    place = taken["links"]["events"]
    with following(site, taken) as stream:
        last = next_event(stream)
    assert last["data"].state == "done" and site.get(place, Last_Event_ID=last["id"]).body == b"", "it has the end"
    for other in ("0-0", "1-done-0"):
        assert site.get(place, Last_Event_ID=other).body.count(b"event: state") == 1


def test_the_end_of_a_job_that_never_ran_is_told(tmp_path: Path) -> None:
    with web_site(tmp_path) as site:
        site.post("/v1/simulations", LONG)
        serving = {**LONG["serving"], "seed": 2}
        queued = site.post("/v1/simulations", {**LONG, "serving": serving}).document
        assert queued["state"] == "queued"
        with following(site, queued) as stream:
            last = stream.readline().decode().split()[1]
            site.ask("DELETE", queued["links"]["self"])
            told = stream.read()
        assert b'"cancelled"' in told
        for name in (last, "0-0"):
            assert b'"cancelled"' in site.get(queued["links"]["events"], Last_Event_ID=name).body


def test_a_client_has_so_many_streams(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with web_site(tmp_path, replace(OPTIONS, clients=ClientLimits(streams=1))) as site:
        job = site.post("/v1/simulations", LONG).document
        with following(site, job) as stream:
            assert stream.status == 200 and stream.readline()
            refused = site.get(job["links"]["events"])
            assert (refused.status, refused.document["code"]) == (429, "streams")
            assert int(refused.headers["retry-after"]) > 0
            site.ask("DELETE", job["links"]["self"])
            stream.read()
        assert site.get(job["links"]["events"]).status == 200, "the place is free again"
        until(lambda: not site.service.streams)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_job_is_cancelled_and_its_worker_ended(tmp_path: Path) -> None:
    with web_site(tmp_path) as site:
        taken = site.post("/v1/simulations", LONG)
        place = taken.headers["location"]
        site.until(place, lambda job: job["state"] == "running")
        assert site.get(f"{place}/result").status == 404
        end = time.monotonic() + 30
        while not any(seat.worker for seat in site.service.pool._seated) and time.monotonic() < end:
            time.sleep(0.002)
        assert site.ask("DELETE", place).document["state"] == "cancelled"
        assert site.get(place).document["state"] == "cancelled"
        assert site.get(f"{place}/result").status == 409
        end = time.monotonic() + 30
        while site.service.pool.busy("long") and time.monotonic() < end:
            time.sleep(0.005)
        assert site.service.pool.killed == 1
        assert site.job("/v1/simulations", {"question": QUESTION})["state"] == "done", "another worker"
        listed = [job["state"] for job in site.get("/v1/jobs").document["jobs"]]
        assert listed == ["done", "cancelled"]


def test_jobs_are_those_of_their_client(tmp_path: Path) -> None:
    access = Access(keys=("first-key", "second-key"), open_paths=OPEN_PATHS)
    with web_site(tmp_path, replace(OPTIONS, access=access)) as site:
        first, second = ({"Authorization": f"Bearer {key}"} for key in access.keys)
        place = site.post("/v1/simulations", {"question": QUESTION}, **first).headers["location"]
        assert site.get(place, **first).status == 200
        for path in (place, f"{place}/result", f"{place}/events"):
            assert site.get(path, **second).status == 404
        assert site.ask("DELETE", place, **second).status == 404
        assert site.get("/v1/jobs", **second).document["jobs"] == []
        assert len(site.get("/v1/jobs", **first).document["jobs"]) == 1


def test_a_client_has_so_many_jobs_and_points(tmp_path: Path) -> None:
    limits = ClientLimits(jobs=2, points=70)
    with web_site(tmp_path, replace(OPTIONS, clients=limits)) as site:
        places = []
        for seed in (1, 2):
            serving = {**LONG["serving"], "seed": seed}
            places.append(site.post("/v1/simulations", {**LONG, "serving": serving}).headers["location"])
        refused = site.post("/v1/studies", STUDY)
        assert (refused.status, refused.document["code"]) == (429, "jobs") and int(refused.headers["retry-after"]) > 0
        assert site.post("/v1/plans", QUESTION).status == 200, "people who wait are not behind jobs"
        for place in places:
            site.ask("DELETE", place)
        refused = site.post("/v1/studies", {**STUDY, "prompt_tokens": ["16..60/1"]})
        assert (refused.status, refused.document["code"]) == (429, "points") and "70" in refused.document["detail"]
        assert site.post("/v1/plans", QUESTION).status == 200, "what is known costs nothing"


def test_jobs_that_come_at_once_are_no_more_than_may_be(tmp_path: Path) -> None:
    with web_site(tmp_path, replace(OPTIONS, clients=ClientLimits(jobs=2))) as site:
        desk = site.service.desk

        async def submitted() -> list[Any]:
            taken = (desk.submit("simulation", f"{number:064x}", SIMULATION, "me", 1) for number in range(6))
            return await asyncio.gather(*taken, return_exceptions=True)

        jobs = asyncio.run_coroutine_threadsafe(submitted(), site.loop).result(60)
        assert [isinstance(job, RefusedError) for job in jobs] == [False] * 2 + [True] * 4
        assert not desk._admission.coming


def test_a_job_that_finds_no_room_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with web_site(tmp_path, replace(OPTIONS, clients=ClientLimits(jobs=1))) as site:

        def full(*_: Any) -> int:
            raise UnwritableStoreError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(site.service.desk._database, "_change", full)
            for _ in range(2):
                assert site.post("/v1/simulations", {"question": QUESTION}).status == 507
        assert site.post("/v1/simulations", {"question": QUESTION}).status == 202


@pytest.mark.parametrize("listed", [False, True])
def test_a_cancelled_job_leaves_nothing(tmp_path: Path, listed: bool) -> None:
    rows = [{"arrival": number / 100, "prompt_tokens": 32, "output_tokens": 64} for number in range(20_000)]
    serving = {**LONG["serving"], "requests": rows}
    path, body = ("/v1/simulations", {**LONG, "serving": serving}) if listed else ("/v1/studies", LARGE)
    with web_site(tmp_path) as site:
        place = site.post(path, body).headers["location"]
        end = time.monotonic() + 30
        while not list((tmp_path / "work").glob("*/*")) and time.monotonic() < end:
            time.sleep(0.002)
        assert list((tmp_path / "work").glob("*/*")), "it writes there while it runs"
        assert site.ask("DELETE", place).document["state"] == "cancelled"
        while list((tmp_path / "work").iterdir()) and time.monotonic() < end:
            time.sleep(0.002)
        assert not list((tmp_path / "work").iterdir())


def test_a_plan_that_takes_long_becomes_a_job(tmp_path: Path) -> None:
    with web_site(tmp_path, replace(OPTIONS, patience_s=0.0)) as site:
        taken = site.post("/v1/plans", QUESTION)
        assert taken.status == 202 and taken.document["kind"] == "plan" and taken.headers["retry-after"] == "1"
        job = site.ended(taken.headers["location"])
        assert result(site, job).document["schema"] == "helm.plan-answer/1"
        known = site.post("/v1/plans", QUESTION)
        assert known.status == 200 and known.body == result(site, job).body
        assert site.service.pool.killed == 0


def test_no_job_is_there_by_another_name(site: WebSite) -> None:
    for name in ("0" * 32, "xx", "%00", "%ff"):
        place = f"/v1/jobs/{name}"
        replies = [site.get(place), site.get(f"{place}/result"), site.get(f"{place}/events"), site.ask("DELETE", place)]
        assert [(reply.status, reply.document["title"]) for reply in replies] == [(404, "Not there")] * 4
