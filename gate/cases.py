"""The cases of a suite: folders with a `case.json`, a plan, and a history."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from helmsman.analysis.ask_settings import driven_hardware
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.checks.accept import accept
from helmsman.planner.settings.registry import own_engine
from helmsman.profiles_folder import profiles_folder
from helmsman.schemas.errors import BadInputError, HelmError, UsageError
from helmsman.schemas.gate_case import CommandMeasure, EngineMeasure, GateCase, TraceMeasure
from helmsman.schemas.near_names import close_names
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, read_document

CASE_FILE = "case.json"
HISTORY = "history"
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Case:
    """A case that has been read. `plan`: as it is run; `priced`: the same with the machine's record that prices it."""

    name: str
    folder: Path
    document: GateCase
    plan: Plan
    priced: Plan

    @property
    def file(self) -> Path:
        """The file that describes the case."""
        return self.folder / CASE_FILE

    @property
    def history(self) -> Path:
        """The folder of the case's history."""
        return self.folder / HISTORY

    @property
    def plan_file(self) -> Path:
        """The file of the plan."""
        return self.path(self.document.plan)

    def path(self, name: str) -> Path:
        """Return a file that the case names, from its folder."""
        return (self.folder / name).resolve()


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of a folder, by name. `others`: folders in it that have no case."""

    folder: Path
    cases: tuple[Case, ...]
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder as documents may hold it: bytes that are no UTF-8 are escaped."""
        return str(self.folder).encode("utf-8", "backslashreplace").decode()


def read_suite(folder: Path, names: Collection[str] = ()) -> Suite:
    """Read all cases of a folder, or the one that the folder is itself; `names`: no others.

    Raises BadInputError for a folder without cases, or naming what is wrong in one; UsageError for unknown names."""
    if (folder / CASE_FILE).is_file():
        paths, others = [folder], tuple[str, ...]()
    else:
        paths, others = _case_folders(folder)
    known = [path.resolve().name for path in paths]
    for name in names:
        if name not in known:
            near = close_names(name, known)
            remedy = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
            raise UsageError("no such case", field="case", value=name, remedy=remedy)
    wanted = [path for path, name in zip(paths, known, strict=True) if not names or name in names]
    return Suite(folder, tuple(read_case(path) for path in wanted), others)


def read_case(folder: Path) -> Case:
    """Read the case of a folder. Raises BadInputError naming the file and the field that is wrong in it, or in the plan
    or the record that it names."""
    document = read_document(GateCase, folder / CASE_FILE)
    plan = read_plan(folder / document.plan)
    _check_software(document, plan, folder / CASE_FILE)
    priced = plan if document.hardware is None else _repriced(plan, folder / document.hardware)
    return Case(folder.resolve().name, folder, document, plan, priced)


def read_plan(path: Path) -> Plan:
    """Return the plan of a file, its invariants checked. Raises BadInputError or InfeasibleError naming the file."""
    try:
        return accept(read_document(Plan, path))
    except HelmError as error:
        raise error.at(str(path)) from None


def _case_folders(folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Return the folders with a case, and the names of those without."""
    try:
        folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        remedy = "name a folder of cases"
        raise BadInputError(f"cannot be read: {error.strerror}", file=str(folder), remedy=remedy) from None
    for path in folders:
        if not path.name.isprintable() or len(path.name) > _LONGEST_NAME:
            remedy = f"use up to {_LONGEST_NAME} printable characters"
            raise BadInputError("not a name of a case", file=str(folder), value=path.name, remedy=remedy)
    paths = [path for path in folders if (path / CASE_FILE).exists()]
    if not paths:
        remedy = f"give each case a folder with a {CASE_FILE}"
        raise BadInputError("has no cases", file=str(folder), remedy=remedy)
    return paths, tuple(path.name for path in folders if path not in paths)


def _check_software(document: GateCase, plan: Plan, file: Path) -> None:
    """Raise BadInputError for a plan that was priced as another engine runs it where Helm's own executor would be
    measured, and for one that was not where an engine would be."""
    how = document.measure
    priced = None if plan.machine is None else own_engine(plan)
    if isinstance(how, EngineMeasure):
        if priced == how.engine:
            return
        problem, remedy = f"the plan is not priced as {how.engine} runs it", f"plan with `engine` {how.engine}"
        raise BadInputError(problem, file=str(file), field="measure.engine", value=how.engine, remedy=remedy)
    if plan.machine is None or isinstance(how, TraceMeasure | CommandMeasure):
        return
    problem = f"the plan is priced as {plan.strategy.name} runs it, and Helm's own executor would be measured"
    remedy = "measure by `engine`, by a command or a trace, or plan with `same_software`"
    raise BadInputError(problem, file=str(file), field="measure.by", value=how.by, remedy=remedy)


def _repriced(plan: Plan, record: Path) -> Plan:
    """Return the plan with another record of its machine, as the plan's engine drives it where the plan is priced so.
    Raises BadInputError where it has not what the plan uses."""
    own = load_hardware(str(record), profiles_folder())
    try:
        hardware, machine = (own, None) if plan.machine is None else (driven_hardware(plan, own), own)
        changed = {"hardware": hardware, "hardware_sha256": digest(hardware), "machine": machine}
        return accept(plan.model_copy(update=changed))
    except HelmError as error:
        raise error.at(str(record)) from None
