"""A case measured: seconds of every run by figure, of this version and, interleaved, of another one."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from helmsman.gate.cases import Case
from helmsman.gate.command_output import figures_in
from helmsman.gate.interleaving import Side, interleaved
from helmsman.gate.interpreters import helm_command
from helmsman.gate.machine import machine_here
from helmsman.gate.processes import printed_by
from helmsman.gate.served_run import served_figures
from helmsman.gate.trace_figures import read_stored_run
from helmsman.lowering.placement import batches_together
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.gate_case import CommandMeasure, EngineMeasure, RunMeasure, ServeMeasure, TraceMeasure
from helmsman.schemas.workload import Workload

Figures = dict[str, float]
SideSamples = dict[str, tuple[float, ...]]
"""Seconds of runs by figure, in the order in which they were measured."""
Told = Callable[[str], None]
"""Gets a word about each run."""

_OF_A_REQUEST = ("step", "request")
DEFAULT_FIGURES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("trace", "run", "engine"), _OF_A_REQUEST), "serve": ("tpot", "e2e"), "command": ()
}  # fmt: skip
"""The figures that are judged where a case names none; of a command all that it prints."""


@dataclass(frozen=True, slots=True)
class CaseMeasurement:
    """The samples of each side, the machine that was measured, and the workload where it is not the plan's."""

    sides: Mapping[Side, SideSamples]
    machine: str
    workload: Workload | None = None


def measure(case: Case, pythons: Mapping[Side, str], tell: Told = lambda _: None) -> CaseMeasurement:
    """Measure the case with the interpreter of each side of `pythons`; two sides are interleaved.

    Raises BadInputError and HardwareUnavailableError for what cannot be measured."""
    how = case.document.measure
    if isinstance(how, TraceMeasure):
        stored = read_stored_run(case.plan, case.path(how.file))
        samples = judged(case, stored.samples)
        return CaseMeasurement(dict.fromkeys(pythons, samples), stored.machine, stored.workload)
    order = [side for side in interleaved(case.document.runs) if side in pythons]
    runs: dict[Side, list[Figures]] = {side: [] for side in pythons}
    with TemporaryDirectory(prefix="helm-gate-") as folder:
        for number, side in enumerate(order):
            tell(f"{case.name} {number + 1}/{len(order)}")
            runs[side].append(_run_once(case, pythons[side], Path(folder)))
    return CaseMeasurement({side: judged(case, _samples(case, made)) for side, made in runs.items()}, machine_here())


def check_sides(case: Case) -> None:
    """Raise UsageError where the case cannot be measured with two interpreters: a Trace is not run again, and a command
    may name no interpreter."""
    how = case.document.measure
    named = any("{python}" in word for word in how.argv) if isinstance(how, CommandMeasure) else True
    if isinstance(how, TraceMeasure) or not named:
        remedy = "leave the interpreter out, name other cases, or write {python} in the command"
        raise UsageError(
            "cannot be measured with two interpreters", file=str(case.file), field="measure", remedy=remedy
        )


def judged(case: Case, samples: SideSamples) -> SideSamples:
    """Return the samples of the figures that the case judges. Raises BadInputError for one that was not measured."""
    names = case.document.figures or DEFAULT_FIGURES[case.document.measure.by] or tuple(samples)
    for place, name in enumerate(case.document.figures):
        if name not in samples:
            remedy = f"use some of {', '.join(samples)}"
            raise BadInputError(
                "not measured", file=str(case.file), field=f"figures.{place}", value=name, remedy=remedy
            )
    return {name: samples[name] for name in names if name in samples}


def _samples(case: Case, runs: list[Figures]) -> SideSamples:
    """Return the runs by figure. Raises BadInputError where one printed other figures than the first."""
    for run in runs:
        if run.keys() != runs[0].keys():
            message = f"one run measured {', '.join(runs[0])}, another {', '.join(run)}"
            raise BadInputError(
                message, file=str(case.file), field="measure", remedy="print the same figures each time"
            )
    return {figure: tuple(run[figure] for run in runs) for figure in runs[0]}


def _run_once(case: Case, python: str, folder: Path) -> Figures:
    how = case.document.measure
    match how:
        case CommandMeasure():
            return _by_command(case, how, python)
        case RunMeasure() | EngineMeasure():
            return _by_run(case, how, python, folder)
        case ServeMeasure():
            return served_figures(case, how, python, folder)
    raise AssertionError("a stored trace is not run")


def _by_command(case: Case, how: CommandMeasure, python: str) -> Figures:
    words = {"{python}": python, "{plan}": str(case.plan_file), "{case}": str(case.folder.resolve())}
    argv = [_filled(word, words) for word in how.argv]
    place = (str(case.file), "measure.argv")
    output = printed_by(argv, case.folder, how.limit_s, *place)
    return figures_in(output, case.plan.workload.output_tokens, *place)


def _filled(word: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        word = word.replace(name, value)
    return word


def _by_run(case: Case, how: RunMeasure | EngineMeasure, python: str, folder: Path) -> Figures:
    """Run the plan in a process that prints a document of `helm-run`, by Helm's own executor or through an engine."""
    work = case.plan.workload
    prompt = list(islice(cycle(how.prompt), work.prompt_tokens))
    tokens = folder / "prompt.json"
    tokens.write_text(json.dumps([prompt] * (work.batch * batches_together(case.plan))))
    argv = helm_command(
        *(python, "run", case.plan_file, "--checkpoint", case.path(how.checkpoint), "--tokens", tokens),
        *("--runs", how.repeats, "--ignore-eos", "--json", *_engine_words(case, how)),
    )
    output = printed_by(argv, case.folder, how.limit_s, str(case.file), "measure")
    return figures_in(output, work.output_tokens, str(case.file), "measure")


def _engine_words(case: Case, how: RunMeasure | EngineMeasure) -> list[str]:
    """Return the words that have `helm-run` drive an engine; a link to an interpreter stays what it is."""
    if isinstance(how, RunMeasure):
        return []
    python = [] if how.python is None else ["--engine-python", str((case.folder / how.python).absolute())]
    return ["--engine", how.engine, *python]
