"""Studies that clients ask for: read, checked for names of files, and answered with what is kept between attempts."""

from collections.abc import Callable, Mapping
from pathlib import Path

from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.plan_question import ComposedMachine
from helmsman.schemas.read import parse_json
from helmsman.schemas.study import Study
from helmsman.schemas.study_report import StudyReport
from helmsman.service.planner.questions.catalogue import Catalogue
from helmsman.service.planner.questions.planning import check_no_files
from helmsman.simulator.serving.requests.synthetic import PREFIX
from helmsman.studies.answering.local import LocalEngine
from helmsman.studies.answering.run import counted
from helmsman.studies.answering.store import Store
from helmsman.studies.ask import report_of, varied_questions
from helmsman.studies.questions.read_study import study_of


def read_study(content: bytes, catalogue: Catalogue, most_points: int) -> tuple[Study, int]:
    """Return a study whose names are all of the catalogue, and the number of questions that it is at most.

    Raises BadInputError for what is no study, UsageError for names that there are not, for requests of a file, and for
    more than `most_points` questions."""
    given = parse_json(content, "study")
    if not isinstance(given, Mapping):
        raise BadInputError("a JSON object is expected", value=given, remedy="write a study as in docs/studies.md")
    study = _named(study_of(given), catalogue)
    _check_no_files(study)
    grid = counted(study)
    points = len(grid)
    if points > most_points:
        remedy = f"shorten its lists: at most {most_points} questions here"
        raise UsageError("too many questions", field="points", value=points, remedy=remedy)
    return study, points + varied_questions(study, grid)


def answer_study(study: Study, folder: Path, tell: Callable[[int, int], None]) -> StudyReport:
    """Return the report of a study. Answers are kept in `folder` as they come, so that another attempt goes on."""
    return report_of(study, counted(study), LocalEngine(1), Store(folder), tell)


def _check_no_files(study: Study) -> None:
    """Raise UsageError where requests, or options of strategies, are those of a file."""
    for strategy, options in study.options.items():
        check_no_files(strategy, options)
    for requests in () if study.serving is None else study.serving.requests:
        if not requests.startswith(PREFIX):
            remedy = f"describe them, as {PREFIX}n=2000,input=1000,output=200"
            raise UsageError("names a file of the server", field="serving.requests", value=requests, remedy=remedy)


def _named(study: Study, catalogue: Catalogue) -> Study:
    """Return the study with models by their names in the catalogue: others would be looked for among files. Raises
    UsageError for names that there are not."""
    models = tuple(catalogue.model(name).name for name in study.models)
    for machine in study.machines:
        if not isinstance(machine, ComposedMachine):
            catalogue.machine(machine)
    return study.model_copy(update={"models": models})
