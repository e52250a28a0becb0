"""The tasks of workers by name: each reads a question and gives the document that answers it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from shutil import rmtree

from helmsman import library
from helmsman.hwdb.model_config import model_from_config
from helmsman.planner.decide import decide
from helmsman.planner.registry import OWN, check_no_engine
from helmsman.schemas.base import Document
from helmsman.schemas.comparison_question import ComparisonQuestion
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.planner_question import PlannerQuestion
from helmsman.schemas.read import parse_document, parse_json
from helmsman.schemas.simulation_question import SimulationQuestion
from helmsman.schemas.study import Study
from helmsman.schemas.study_table import write_rows
from helmsman.schemas.write import whole_file
from helmsman.service.planner.answers.plan_answer import plan_answer
from helmsman.service.planner.computing.answer import JSON, PARQUET, WorkerAnswer
from helmsman.service.planner.computing.results import rename_result, store_result
from helmsman.service.planner.questions.catalogue import Catalogue
from helmsman.service.planner.questions.planning import file_options, machine_of, request_of
from helmsman.service.planner.questions.simulating import check_simulation, simulation
from helmsman.service.planner.questions.studying import answer_study, read_study

CATALOGUE = Catalogue()
"""What this process has read, and those that are copies of it begin with."""

Tell = Callable[[int, int], None]
"""Hears of the parts of a task that are done, and of all."""


@dataclass(frozen=True, slots=True)
class TaskSetting:
    """The surroundings of a worker's tasks: the `catalogue`; `work`: the folder for what is kept between attempts, and
    `results`: that for results; `points`: the most questions of a study."""

    catalogue: Catalogue
    work: Path
    results: Path
    points: int


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """A question and its key; `tell` hears of progress."""

    key: str
    question: bytes
    setting: TaskSetting
    tell: Tell


def _answer(document: Document) -> WorkerAnswer:
    return WorkerAnswer(document.to_json(indent=None).encode())


def _plan(task: WorkerTask) -> WorkerAnswer:
    question = parse_document(PlannerQuestion, task.question, "question")
    return _answer(plan_answer(decide(request_of(question, task.setting.catalogue))))


def _comparison(task: WorkerTask) -> WorkerAnswer:
    question = parse_document(ComparisonQuestion, task.question, "question")
    check_no_engine(question.question.engine)
    request = request_of(question.question, task.setting.catalogue)
    names = OWN if question.strategies is None else question.strategies
    named = next((name for name in question.options if name in file_options(names)), None)
    if named is not None:
        raise UsageError("names a file of the server", field=f"options.{named}", remedy="leave it out")
    given = {name: value for name, value in question.options.items() if value is not None}
    # a strategy is asked once, and again about larger batches where these are asked for
    parts, begun = len(names) * (1 if question.most is None else 2), count()
    followed = replace(request, tell=lambda _: task.tell(next(begun), parts))
    return _answer(library.compare(followed, question.strategies, given, question.most))


def _check_simulation(task: WorkerTask) -> WorkerAnswer:
    question = parse_document(SimulationQuestion, task.question, "question")
    check_simulation(question, task.setting.catalogue, task.setting.work / task.key)
    return WorkerAnswer(question.to_json(indent=None).encode(), points=1)


def _simulation(task: WorkerTask) -> WorkerAnswer:
    question = parse_document(SimulationQuestion, task.question, "question")
    return _stored(task, simulation(question, task.setting.catalogue, task.setting.work / task.key))


def _check_study(task: WorkerTask) -> WorkerAnswer:
    study, points = read_study(task.question, task.setting.catalogue, task.setting.points)
    return WorkerAnswer(study.to_json(indent=None).encode(), points=points)


def _study(task: WorkerTask) -> WorkerAnswer:
    folder = task.setting.work / task.key
    report = answer_study(parse_document(Study, task.question, "study"), folder, task.tell)
    answer = _stored(task, report)
    with whole_file(place := task.setting.results / f".{task.key}") as stream:
        write_rows(report.rows, stream)
    table = rename_result(place)
    rmtree(folder, ignore_errors=True)
    return WorkerAnswer(b"", files=(*answer.files, (PARQUET, table)))


def _stored(task: WorkerTask, document: Document) -> WorkerAnswer:
    """Return the answer whose document is in a file of its own."""
    return WorkerAnswer(
        b"", files=((JSON, store_result(task.setting.results, document.to_json(indent=None).encode())),)
    )


def _model(task: WorkerTask) -> WorkerAnswer:
    """A Model of its document, or of a Hugging Face `config.json`."""
    content = parse_json(task.question, "model")
    if not isinstance(content, dict):
        raise BadInputError("a JSON object is expected", value=content, remedy="give a config.json or a Model document")
    if "schema" in content:
        return _answer(parse_document(Model, task.question, "model"))
    return _answer(model_from_config(content, _config_name(content), "config.json"))


def _config_name(config: Mapping[str, object]) -> str:
    """Return the name of a model by where its configuration says that it comes from."""
    place = config.get("_name_or_path")
    name = place.rstrip("/").rpartition("/")[2] if isinstance(place, str) else ""
    return "".join(letter for letter in name if letter.isprintable())[:200] or "model"


def _machine(task: WorkerTask) -> WorkerAnswer:
    """A Hardware document of a machine as questions give it."""
    content = parse_json(task.question, "machine")
    wrapped = json.dumps({"model": "-", "hardware": content}).encode()
    question = parse_document(PlannerQuestion, wrapped, "machine")
    return _answer(machine_of(question.hardware, task.setting.catalogue))


TASKS: dict[str, Callable[[WorkerTask], WorkerAnswer]] = {
    "plan": _plan,
    "comparison": _comparison,
    "check-simulation": _check_simulation,
    "simulation": _simulation,
    "check-study": _check_study,
    "study": _study,
    "model": _model,
    "machine": _machine,
}
"""Every task by its name."""
