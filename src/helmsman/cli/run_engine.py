"""`helm-run --engine`: a plan run through an engine that people have, with the settings that Helm writes for it."""

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from helmsman.cli.documents import plan_of
from helmsman.cli.engine_settings import settings_lines
from helmsman.cli.output import emit
from helmsman.cli.run import Printer, sequences, streams, text_of, warn_run
from helmsman.schemas.errors import UsageError
from helmsman.schemas.write import whole_file

if TYPE_CHECKING:
    from helmsman.engines.ask_run import EngineExecution
    from helmsman.schemas.engine_settings import EngineSettings
    from helmsman.schemas.plan import Plan
    from helmsman.schemas.run_report import RunReport

_OWN = ("chat", "depth", "storage", "routing_trace", "draft_tokens", "stop")
"""Options that are of Helm's executor alone."""


def execute_engine(args: argparse.Namespace) -> int:
    """Run, write, print. Raises UsageError for options of Helm's executor."""
    from helmsman.engines.ask_run import check_engine_run, run_engine
    from helmsman.schemas.trace import write_trace

    _check(args)
    plan = plan_of(args)
    text, warnings = text_of(args, plan)
    (prompt, *others) = sequences(args, text)
    if others:
        raise UsageError("an engine is run with one sequence", field="--text", remedy="give it once")
    output = args.output_tokens or plan.workload.output_tokens
    check_engine_run(plan, args.checkpoint, args.engine, len(prompt), output)
    warn_run(warnings)
    streamed = streams(args, plan, text)
    printer = Printer(text if streamed else None, ())
    done = run_engine(
        plan,
        args.checkpoint,
        prompt,
        engine=args.engine,
        python=args.engine_python,
        output_tokens=output,
        runs=args.runs,
        ignore_eos=args.ignore_eos,
        tell=printer.on_id,
    )
    printer.finish()
    for line in () if args.quiet else _settings_lines(plan, done.settings):
        print(f"helm-run: {args.in_flags(line)}", file=sys.stderr)
    if args.trace is not None:
        with whole_file(args.trace) as stream:
            write_trace(done.trace(), stream)
    report = done.document(None if text is None else (text.decode(done.runs[0].tokens),))
    emit(args, report.to_json(), lambda: "\n".join(_lines(args, done, report, streamed)))
    return 0


def _check(args: argparse.Namespace) -> None:
    from helmsman.cli.sampling import sampling_of
    from helmsman.executor.text.sampling import GREEDY

    given = [name for name in _OWN if getattr(args, name)]
    if args.backend != "native":
        given.append("backend")
    if given:
        field = f"--{given[0].replace('_', '-')}"
        raise UsageError("is of Helm's own executor", field=field, remedy="leave it out, or --engine")
    if sampling_of(args) != GREEDY:
        message, remedy = "an engine takes the likeliest tokens here", "leave sampling's options out"
        raise UsageError(message, field="--engine", value=args.engine, remedy=remedy)


def _settings_lines(plan: "Plan", settings: "EngineSettings") -> Iterator[str]:
    """Yield what an engine cannot express of a plan, what that costs, and whether the plan predicts the engine."""
    yield from settings_lines(settings)
    if settings.engine not in plan.hardware.sources:
        yield f"note: the plan predicts another engine: plan with --engine {settings.engine} for helm-check"


def _lines(args: argparse.Namespace, done: "EngineExecution", report: "RunReport", streamed: bool) -> list[str]:
    from helmsman.executor.measuring.report import lines
    from helmsman.schemas.units import format_bytes

    assert report.engine is not None, "an engine ran"
    resident = report.engine.resident_bytes
    return [
        *lines(report, streamed),
        f"engine    {report.engine.program}: {report.engine.settings}",
        *([] if resident is None else [f"resident  {format_bytes(resident)} with the model loaded"]),
        *([f"trace     {args.trace}"] if args.trace else []),
    ]
