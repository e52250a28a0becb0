"""The client against a running service: the answers of the library, its errors, jobs, and services that are not there
or have too much to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from web_service import OPTIONS, QUESTION, WebSite, web_site

import helmsman
from helmsman.client import JobHandle, PlannerClient, ServiceError
from helmsman.client.connection import Connection
from helmsman.planner.registry import names as strategy_names
from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, HelmError, InfeasibleError, UsageError
from helmsman.schemas.job import PlannerJob
from helmsman.schemas.planner_question import PlannerQuestion
from helmsman.schemas.study_table import read_rows

STUDY: dict[str, Any] = {
    "models": "Qwen3-0.6B",
    "machines": "rtx4060-laptop",
    "strategies": "layer-split",
    "formats": ["f16", "q8_0"],
    "sensitivity": 0,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    with web_site(tmp_path_factory.mktemp("client") / "store", OPTIONS) as running:
        yield running


@pytest.fixture
def planner(site: WebSite) -> Iterator[PlannerClient]:
    with PlannerClient(f"http://127.0.0.1:{site.port}") as client:
        yield client


def test_a_plan_is_the_one_that_the_library_makes(planner: PlannerClient) -> None:
    expected = helmsman.plan(QUESTION).plan
    assert planner.plan(QUESTION).plan == expected
    assert planner.plan(PlannerQuestion(**QUESTION)).plan == expected


def test_models_and_machines_are_those_of_the_catalogue(planner: PlannerClient) -> None:
    model, machine = helmsman.load_model("Qwen3-8B"), helmsman.load_hardware("rtx4060-laptop")
    assert planner.model("Qwen3-8B") == model and planner.machine("rtx4060-laptop") == machine
    assert [entry.name for entry in planner.models("Qwen3-8B").entries] == ["Qwen3-8B"]
    assert "rtx4060-laptop" in [entry.name for entry in planner.machines("4060").entries]
    assert all("4090" in f"{entry.name} {entry.about}" for entry in planner.machines("4090", "gpus").entries)
    assert planner.read_model(model.to_dict()) == model
    assert [entry.name for entry in planner.strategies().entries] == ["best", *strategy_names()]
    assert [entry.name for entry in planner.strategies("twinp").entries] == ["twinpilots"]
    assert "llama.cpp" in [entry.name for entry in planner.engines().entries]
    changed = planner.make_machine({"base": "rtx4060-laptop", "changes": ["vram=12GB"]})
    assert changed.memory("vram").capacity == 12 * 2**30
    documents = {**QUESTION, "hardware": changed, "model": model}
    assert planner.plan(documents).plan == helmsman.plan(documents).plan


def test_strategies_are_compared(planner: PlannerClient) -> None:
    question = {"question": {**QUESTION, "strategy": "best"}, "strategies": ["layer-split", "cpu-only"]}
    rows = planner.compare(question).rows
    assert [row.strategy for row in rows] == ["layer-split", "cpu-only"]


def test_simulations_and_studies_are_jobs_that_are_waited_for(planner: PlannerClient, tmp_path: Path) -> None:
    seen: list[PlannerJob] = []
    answer = planner.simulate({"question": QUESTION}, seen.append)
    plan = helmsman.plan(QUESTION)
    assert answer.replay == helmsman.simulate(plan)
    assert seen[0].state in ("queued", "running") and seen[-1].state == "done"
    path = tmp_path / "rows.parquet"
    report = planner.study(STUDY, rows=path)
    assert report.rows == helmsman.study(STUDY).rows == tuple(read_rows(path))
    kinds = [job.kind for job in planner.jobs()]
    assert kinds[:2] == ["study", "simulation"]
    assert planner.handle(planner.jobs()[0]).result() == report


def test_a_cancelled_job_has_no_result(planner: PlannerClient) -> None:
    serving = {"requests": "synthetic:n=100000,input=512,output=64,rate=5", "slo": "ttft=1s"}
    handle = planner.submit_simulation({"question": QUESTION, "serving": serving, "capacity": True})
    assert handle.cancel().state in ("running", "cancelled")
    with pytest.raises(ServiceError) as caught:
        handle.result()
    assert caught.value.reason == "cancelled" and handle.job().state == "cancelled"


@pytest.mark.parametrize(
    ("question", "kind", "field"),
    [
        ({**QUESTION, "model": "Qwen3-800B"}, UsageError, "model"),
        ({**QUESTION, "strategy": "fastest"}, UsageError, "strategy"),
        ({**QUESTION, "prompt_tokens": -1}, BadInputError, "prompt_tokens"),
        ({**QUESTION, "colour": "red"}, BadInputError, "colour"),
        ({**QUESTION, "model": "Llama-3.1-70B", "format": "f16"}, InfeasibleError, None),
        ({**QUESTION, "model": object()}, UsageError, None),
    ],
)
def test_errors_are_those_of_the_library(
    planner: PlannerClient, question: dict[str, Any], kind: type[HelmError], field: str | None
) -> None:
    with pytest.raises(kind) as caught:
        planner.plan(question)
    assert caught.value.field == field and type(caught.value) is kind
    if isinstance(caught.value, InfeasibleError):
        with pytest.raises(InfeasibleError) as expected:
            helmsman.plan(question)
        assert caught.value.lacks == expected.value.lacks and caught.value.remedy == expected.value.remedy


def test_a_job_that_there_is_not_is_a_refusal_of_the_service(planner: PlannerClient) -> None:
    handle = planner.submit_study(STUDY)
    report = handle.result()
    links = handle.first.links.model_copy(update={"self": f"/v1/jobs/{'0' * 32}"})
    gone = JobHandle(handle.connection, type(report), handle.first.model_copy(update={"links": links}))
    with pytest.raises(ServiceError) as caught:
        gone.job()
    assert caught.value.status == 404 and caught.value.exit_code == 6


def test_no_service_is_one_line() -> None:
    with PlannerClient("http://127.0.0.1:9") as client, pytest.raises(HardwareUnavailableError) as caught:
        client.models()
    assert "no planner service answers" in str(caught.value) and "helm-web" in str(caught.value)
    with pytest.raises(UsageError, match="not a URL"):
        PlannerClient("http://[::1")


class Script:
    """Answers of a service, one after the other; the last one again and again. Time passes when somebody sleeps."""

    def __init__(self, *answers: httpx2.Response) -> None:
        self.answers, self.now, self.slept = list(answers), 0.0, list[float]()

    def connection(self, patience_s: float) -> Connection:
        http = httpx2.Client(base_url="http://service", transport=httpx2.MockTransport(self.reply))
        return Connection(http, patience_s, lambda: self.now, self.sleep)

    def reply(self, request: httpx2.Request) -> httpx2.Response:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


BUSY = httpx2.Response(429, headers={"Retry-After": "2"}, content=b"busy")
LISTED = httpx2.Response(200, content=b'{"schema": "helm.job-list/1", "jobs": []}')


def test_a_busy_service_is_asked_again_when_it_says_so() -> None:
    script = Script(BUSY, BUSY, LISTED)
    assert script.connection(10.0).ask("GET", "/v1/jobs").status_code == 200
    assert script.slept == [2.0, 2.0]


def test_patience_ends() -> None:
    script = Script(BUSY)
    with pytest.raises(ServiceError) as caught:
        script.connection(5.0).ask("GET", "/v1/jobs")
    assert script.slept == [2.0, 2.0] and caught.value.reason == "foreign" and caught.value.status == 429


def test_something_else_that_answers_is_told() -> None:
    script = Script(httpx2.Response(404, content=b"<html>nginx</html>"))
    with pytest.raises(ServiceError, match="not an answer of a planner service") as caught:
        script.connection(5.0).ask("GET", "/v1/models")
    assert "check the URL" in str(caught.value)


def test_a_stream_that_breaks_is_opened_again() -> None:
    """The service ends in the middle of a stream and starts anew: the job goes on, and so does who follows it."""
    links = {"self": "/v1/jobs/1", "events": "/v1/jobs/1/events", "result": "/v1/jobs/1/result"}
    states = {
        state: PlannerJob(id="0" * 32, kind="study", state=state, created=0.0, links=links)
        for state in ("queued", "running", "done")
    }

    def event(state: str) -> httpx2.Response:
        data = f"event: state\ndata: {states[state].to_json(indent=None)}\n\n"
        return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=data.encode())

    now = {state: httpx2.Response(200, content=job.to_json().encode()) for state, job in states.items()}
    script = Script(event("running"), now["running"], event("done"))
    handle = JobHandle(script.connection(5.0), PlannerJob, states["queued"])
    assert [job.state for job in handle.follow()] == ["queued", "running", "done"]
    script = Script(event("running"), now["queued"], event("running"), now["done"])
    handle = JobHandle(script.connection(5.0), PlannerJob, states["queued"])
    assert [job.state for job in handle.follow()] == ["queued", "running", "queued", "running", "done"]
    handle = JobHandle(Script(event("running"), now["done"]).connection(5.0), PlannerJob, states["queued"])
    assert [job.state for job in handle.follow()] == ["queued", "running", "done"], "the end is told whoever tells it"


def test_a_stream_that_is_refused_is_asked_for_again_and_else_the_job() -> None:
    links = {"self": "/v1/jobs/1", "events": "/v1/jobs/1/events", "result": "/v1/jobs/1/result"}
    states = [
        PlannerJob(id="0" * 32, kind="study", state=state, created=0.0, links=links)
        for state in ("queued", "running", "done")
    ]
    running, done = (httpx2.Response(200, content=job.to_json().encode()) for job in states[1:])
    refused = httpx2.Response(429, headers={"Retry-After": "5"}, content=b"streams")
    stopping = httpx2.Response(503, headers={"Retry-After": "5"}, content=b"stopping")
    script = Script(refused, refused, running, stopping, refused, done)
    handle = JobHandle(script.connection(60.0), PlannerJob, states[0])
    assert [job.state for job in handle.follow()] == ["queued", "running", "done"]
    assert script.slept == [5.0, 0.5, 5.0]
    event = f"event: state\ndata: {states[2].to_json(indent=None)}\n\n".encode()
    streamed = httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=event)
    script = Script(refused, streamed)
    assert [event.event for event in script.connection(60.0).events("/v1/jobs/1/events")] == ["state"]
    assert script.slept == [5.0]


def test_a_service_that_stays_away_is_waited_for_a_minute() -> None:
    script = Script(LISTED)

    def away(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    http = httpx2.Client(base_url="http://service", transport=httpx2.MockTransport(away))
    links = {"self": "/v1/jobs/1", "events": "/v1/jobs/1/events"}
    job = PlannerJob(id="0" * 32, kind="study", state="queued", created=0.0, links=links)
    handle = JobHandle(Connection(http, 5.0, lambda: script.now, script.sleep), PlannerJob, job)
    with pytest.raises(HardwareUnavailableError):
        handle.result()
    assert 60.0 <= script.now <= 61.0
