"""Traces of runs as measured runs: how long prompts and decode steps took, whatever tasks they were made of."""

from collections.abc import Iterator
from statistics import median

from helmsman.analysis.bench_files.measured_run import MeasuredRun
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan
from helmsman.schemas.trace import Trace


def trace_runs(plan: Plan, trace: Trace, file: str) -> Iterator[MeasuredRun]:
    """Yield the prompts' and the steps' speed in a measured Trace of a plan: medians of its runs. Raises BadInputError
    for a Trace that was not measured."""
    if trace.info.source != "measured":
        problem, remedy = f"is {trace.info.source}, not measured", "give the Trace of a run"
        raise BadInputError(problem, file=file, field="source", remedy=remedy)
    work, prompts, steps = plan.workload, list[float](), list[float]()
    for run in sorted({span.run for span in trace.spans}):
        spans = [span for span in trace.spans if span.run == run]
        first = max((span.end_s for span in spans if span.phase == "prefill"), default=0.0)
        last = max((span.end_s for span in spans if span.phase == "decode"), default=first)
        count = len({span.iteration for span in spans if span.phase == "decode"})
        prompts += [first] if first else []
        steps += [(last - first) / count] if count and last > first else []
    if steps:
        yield MeasuredRun("decode", work.batch / median(steps), f"{file} (steps)")
    if prompts:
        yield MeasuredRun("prefill", work.batch * work.new_tokens / median(prompts), f"{file} (prompts)")
