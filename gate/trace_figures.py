"""The figures of a stored Trace, run by run."""

from dataclasses import dataclass
from pathlib import Path

from helmsman.analysis.expected_pass import check_belongs, workload_of
from helmsman.gate.machine import machine_line
from helmsman.hwdb.machine_line import facts_in
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan
from helmsman.schemas.trace import Span, Trace, read_trace
from helmsman.schemas.workload import Workload


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The seconds of every run by figure, the machine that ran, and what it ran."""

    samples: dict[str, tuple[float, ...]]
    machine: str
    workload: Workload


def read_stored_run(plan: Plan, path: Path) -> StoredRun:
    """Read the runs of a Trace: `ttft`, `step` (the mean of a run's decode steps) and `request`.

    Raises BadInputError for a Trace that is corrupt, of another plan, or without a prompt or a decode step."""
    trace = read_trace(path)
    check_belongs(plan, trace, "measured", str(path))
    runs = [_figures(spans, str(path)) for spans in _by_run(trace)]
    if not runs:
        raise BadInputError("no run in the Trace", file=str(path), remedy="write it with helm-run --trace")
    samples = {figure: tuple(run[figure] for run in runs) for figure in runs[0]}
    return StoredRun(samples, machine_line(facts_in(trace.info.notes)), workload_of(plan, trace, str(path)))


def _by_run(trace: Trace) -> list[list[Span]]:
    runs: dict[int, list[Span]] = {}
    for span in trace.spans:
        runs.setdefault(span.run, []).append(span)
    return [spans for _, spans in sorted(runs.items())]


def _figures(spans: list[Span], file: str) -> dict[str, float]:
    prompt = [span.end_s for span in spans if span.phase == "prefill"]
    steps = {span.iteration for span in spans if span.phase == "decode"}
    if not prompt or not steps:
        remedy = "run the whole request, with 2 or more output tokens"
        raise BadInputError("no prompt or no decode step in a run", file=file, remedy=remedy)
    ttft, request = max(prompt), max(span.end_s for span in spans)
    return {"ttft": ttft, "step": (request - ttft) / len(steps), "request": request}
