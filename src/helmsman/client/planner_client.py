"""The planner service as an object: the questions of the library, asked over HTTP."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote

import httpx2

from helmsman.client.connection import Connection
from helmsman.client.jobs import JobHandle, Told
from helmsman.schemas.base import Document, Frozen
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.comparison_question import ComparisonQuestion
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.job import JobKind, PlannerJob, PlannerJobs
from helmsman.schemas.listing import Listing
from helmsman.schemas.model import Model
from helmsman.schemas.plan_answer import PlanAnswer
from helmsman.schemas.plan_question import ComposedMachine
from helmsman.schemas.planner_question import ChangedMachine, PlannerQuestion
from helmsman.schemas.read import parse_mapping
from helmsman.schemas.simulation_answer import SimulationAnswer
from helmsman.schemas.simulation_question import SimulationQuestion
from helmsman.schemas.study import Study
from helmsman.schemas.study_report import StudyReport
from helmsman.schemas.write import whole_file

AnswerT = TypeVar("AnswerT", bound=Document)
QuestionT = TypeVar("QuestionT", bound=Document)

Content = Mapping[str, Any]
"""A document's content, as JSON has it; documents may stand in it."""

HOME = "http://127.0.0.1:8080"
PARQUET = "application/vnd.apache.parquet"
_RESULTS: dict[JobKind, type[Document]] = {
    "plan": PlanAnswer,
    "comparison": Comparison,
    "simulation": SimulationAnswer,
    "study": StudyReport,
}


class PlannerClient:
    """A client of the planner service at `url`.

    `key`: of a service that asks for one; `timeout_s`: of one request; `patience_s`: for which a busy service is asked
    again; `transport`: of httpx2, for tests and proxies. Every method raises the library's errors: UsageError,
    BadInputError, InfeasibleError for what is asked, HardwareUnavailableError where no service answers, and
    `ServiceError` for refusals of the service. To be closed, or used by `with`."""

    def __init__(
        self,
        url: str = HOME,
        key: str | None = None,
        timeout_s: float = 60.0,
        patience_s: float = 60.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            http = httpx2.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)
        except (httpx2.InvalidURL, ValueError) as error:
            raise UsageError(f"not a URL: {error}", field="url", value=url, remedy=f"write {HOME}") from None
        self._connection = Connection(http, patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connection.http.close()

    def models(self, text: str = "") -> Listing:
        """Return the models that are known by name; `text`: a part of a name, or of what is said about it."""
        return self._connection.document(Listing, "/v1/models", q=text)

    def model(self, name: str) -> Model:
        """Return the document of a model."""
        return self._connection.document(Model, f"/v1/models/{quote(name)}")

    def read_model(self, content: Content) -> Model:
        """Return the model of a Hugging Face `config.json`, or of a Model document."""
        return self._connection.read(Model, self._connection.ask("POST", "/v1/models", _json(content)))

    def machines(self, text: str = "", kind: Literal["machines", "gpus", "cpus"] = "machines") -> Listing:
        """Return the machines, GPUs or CPUs that are known by name."""
        return self._connection.document(Listing, "/v1/hardware", q=text, kind=kind)

    def machine(self, name: str) -> Hardware:
        """Return the record of a machine."""
        return self._connection.document(Hardware, f"/v1/hardware/{quote(name, safe='')}")

    def strategies(self, text: str = "") -> Listing:
        """Return the strategies that plans are made by; `text`: as of models."""
        return self._connection.document(Listing, "/v1/strategies", q=text)

    def engines(self, text: str = "") -> Listing:
        """Return the engines whose speed is predicted; `text`: as of models."""
        return self._connection.document(Listing, "/v1/engines", q=text)

    def make_machine(self, choice: ComposedMachine | ChangedMachine | Content) -> Hardware:
        """Return the record of a machine of parts, or of one with something changed."""
        return self._connection.read(Hardware, self._connection.ask("POST", "/v1/hardware", _json(choice)))

    def plan(self, question: PlannerQuestion | Content, tell: Told | None = None) -> PlanAnswer:
        """Return the best plan for a question; one that takes long is waited for, and `tell` hears of it."""
        return self._answer(PlanAnswer, "/v1/plans", _document(PlannerQuestion, question), tell)

    def compare(self, question: ComparisonQuestion | Content, tell: Told | None = None) -> Comparison:
        """Return what several strategies answer to one question, the best first."""
        return self._answer(Comparison, "/v1/comparisons", _document(ComparisonQuestion, question), tell)

    def simulate(self, question: SimulationQuestion | Content, tell: Told | None = None) -> SimulationAnswer:
        """Return what becomes of a plan, or of requests that it serves, in virtual time."""
        return self.submit_simulation(question).result(tell)

    def study(self, study: Study | Content, tell: Told | None = None, rows: Path | None = None) -> StudyReport:
        """Return the report of a study; `rows`: the file into which its table is written (Parquet)."""
        handle = self.submit_study(study)
        report = handle.result(tell)
        if rows is not None:
            with whole_file(rows) as stream:
                stream.write(handle.content(PARQUET))
        return report

    def submit_simulation(self, question: SimulationQuestion | Content) -> JobHandle[SimulationAnswer]:
        """Begin a simulation."""
        return self._submitted(SimulationAnswer, "/v1/simulations", _document(SimulationQuestion, question))

    def submit_study(self, study: Study | Content) -> JobHandle[StudyReport]:
        """Begin a study; one entry may stand for a list of one, as in its file."""
        return self._submitted(StudyReport, "/v1/studies", _json(study))

    def jobs(self) -> tuple[PlannerJob, ...]:
        """Return this client's own jobs, the newest first."""
        return self._connection.document(PlannerJobs, "/v1/jobs").jobs

    def handle(self, job: PlannerJob) -> JobHandle[Document]:
        """Return a job of before, to be followed, cancelled, or asked for its result."""
        return JobHandle(self._connection, _RESULTS[job.kind], job)

    def _answer(self, kind: type[AnswerT], path: str, content: bytes, tell: Told | None) -> AnswerT:
        answer = self._connection.ask("POST", path, content)
        if answer.status_code != 202:
            return self._connection.read(kind, answer)
        return JobHandle(self._connection, kind, self._connection.read(PlannerJob, answer)).result(tell)

    def _submitted(self, kind: type[AnswerT], path: str, content: bytes) -> JobHandle[AnswerT]:
        answer = self._connection.ask("POST", path, content)
        return JobHandle(self._connection, kind, self._connection.read(PlannerJob, answer))


def _document(kind: type[QuestionT], question: QuestionT | Content) -> bytes:
    """Return the JSON text of a question that has been checked here. Raises UsageError and BadInputError."""
    if not isinstance(question, kind):
        question = parse_mapping(kind, question, "question", "{'model': NAME, 'hardware': NAME}", _plain)
    return question.to_json(indent=None).encode()


def _json(content: Frozen | Content) -> bytes:
    """Return the JSON text of a document, or of content that the service checks. Raises UsageError."""
    try:
        return json.dumps(_plain(content) if isinstance(content, Frozen) else dict(content), default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}", remedy="give a mapping as JSON has it") from None


def _plain(value: object) -> object:
    """Return a document in JSON's values. Raises TypeError for anything else."""
    if isinstance(value, Frozen):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    raise TypeError(f"{value!r:.80} is nothing that JSON has")
