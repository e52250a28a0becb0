"""`helm-calibrate`: what do runs of an engine on this machine say, and how much better are predictions for it?"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helmsman.cli.app import run_command
from helmsman.cli.documents import read_plan
from helmsman.cli.local_names import model_argument
from helmsman.cli.machine import add_machine_arguments, machine, warn, warn_of_disturbed
from helmsman.cli.output import show, write_out
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.strategies import engine_named
from helmsman.planner.registry import ENGINES
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KV_FORMATS, format_named

if TYPE_CHECKING:
    from helmsman.analysis.bench_files.measured_run import MeasuredRun, RefusedResult
    from helmsman.analysis.bench_files.run_requests import CalibrationSubject
    from helmsman.schemas.calibration_report import CalibratedPrediction, CalibrationReport
    from helmsman.schemas.predicted import Interval

_DEFAULT = "llama.cpp"
_CALIBRATED = tuple(name for name in ENGINES if name != "ours")
_MOST_REFUSED = 8
"""Rows that are named one by one where many are refused."""
_WORK = 44
"""Columns of a line for what it is about."""


def build_parser() -> Parser:
    """Return the arguments of helm-calibrate."""
    parser = command_parser(
        "helm-calibrate",
        "Move an engine's constants to runs on a machine: its record then predicts that engine there.",
        "helm-calibrate --hw rtx3090-5950x --model Qwen3-8B --format q4_k_m --decode 118 -o mine.json",
    )
    files = "results: llama-bench (-o json, jsonl, csv, or its table), vllm bench, AIPerf; with --plan a Trace"
    parser.add_argument("results", nargs="*", type=Path, metavar="RESULT", help=f"{files} (default: none)")
    add_machine_arguments(parser)
    group = parser.add_argument_group("runs")
    group.add_argument("--engine", type=_calibrated, default=_DEFAULT, metavar="NAME",
                       help=f"that ran: {', '.join(_CALIBRATED)} (default {_DEFAULT})")  # fmt: skip
    group.add_argument("--decode", type=float, metavar="RATE", help="measured by hand: tokens/s of decode steps")
    group.add_argument("--prefill", type=float, metavar="RATE", help="measured by hand: tokens/s of prompts")
    group.add_argument("--plan", type=Path, metavar="FILE", help="the plan that ran, of a Trace or measured by hand")
    work = parser.add_argument_group("what results do not say")
    named = "catalogue name or checkpoint; rows of others are refused (default: as results name theirs)"
    work.add_argument("--model", type=model_argument, metavar="NAME|DIR|FILE", help=named)
    work.add_argument(
        "--format", type=format_named, metavar="NAME", help="of weights (default: as results say, or f16)"
    )
    work.add_argument("--kv-format", type=format_named, choices=KV_FORMATS, default="f16", help="of KV (default f16)")
    work.add_argument("--prompt-tokens", type=int, default=128, metavar="N", help="of a prompt (default 128)")
    work.add_argument("--output-tokens", type=int, default=128, metavar="N", help="made of it (default 128)")
    work.add_argument("--batch", type=int, default=1, metavar="N", help="sequences together (default 1)")
    option = "an option of the engine's plans, such as ngl=20 (default: as results say; may be repeated)"
    work.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help=option)
    return parser


def _calibrated(text: str) -> str:
    """Return the name of an engine that has constants. Raises UsageError for Helm's own executor, and for others."""
    if engine_named(text) not in _CALIBRATED:
        remedy = "use helm-profile, which measures this machine"
        raise UsageError("Helm's own executor has no constants", field="engine", value=text, remedy=remedy)
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Read, calibrate, write the record, print the report."""
    from helmsman.analysis.ask_calibration import calibration

    made = calibration(_subject(args), list(_runs(args)))
    write_out(args, made.hardware.to_json())
    report = made.report
    warn(args, _refused(report))
    show(args, report.to_json(), lambda: "\n".join(_lines(report, args.out)))
    return 0


def _subject(args: argparse.Namespace) -> "CalibrationSubject":
    from dataclasses import replace

    from helmsman.analysis.bench_files.run_requests import UNNAMED, subject_of
    from helmsman.hwdb.load_model import load_model
    from helmsman.this_machine import this_machine

    hardware = machine(args)
    warn_of_disturbed(args, hardware)
    question: dict[str, Any] = {
        "model": UNNAMED if args.model is None else load_model(args.model),
        "hardware": hardware,
        "engine": args.engine,
        "kv_format": args.kv_format,
        "prompt_tokens": args.prompt_tokens,
        "output_tokens": args.output_tokens,
        "batch": args.batch,
        "options": dict(map(_option, args.option)),
    }
    if args.format is not None:
        question["format"] = args.format
    subject = subject_of(question, this_machine)
    return subject if args.plan is None else replace(subject, plan=read_plan(args.plan))


def _option(text: str) -> tuple[str, str | int | float | bool]:
    """Return an option's name and value. Raises UsageError for what is none."""
    name, given, value = text.partition("=")
    if not name or not given:
        raise UsageError("not an option", field="--option", value=text, remedy="write NAME=VALUE, as ngl=20")
    if value in ("true", "false"):
        return name.replace("-", "_"), value == "true"
    try:
        return name.replace("-", "_"), int(value)
    except ValueError:
        return name.replace("-", "_"), value


def _runs(args: argparse.Namespace) -> "Iterator[MeasuredRun | RefusedResult]":
    from helmsman.analysis.ask_calibration import runs_by_hand
    from helmsman.analysis.bench_files.read import read_results
    from helmsman.analysis.bench_files.trace_runs import trace_runs
    from helmsman.schemas.trace import read_trace

    if not args.results and args.decode is None and args.prefill is None:
        raise UsageError("nothing was measured", field="RESULT", remedy="give a file, --decode or --prefill")
    yield from runs_by_hand(args.decode, args.prefill)
    for path in args.results:
        if args.plan is None:
            yield from read_results(path)
        else:
            yield from trace_runs(read_plan(args.plan), read_trace(path), str(path))


def _refused(report: "CalibrationReport") -> str | None:
    if not report.refused:
        return None
    named = [f"{row.where}: {row.reason}" for row in report.refused[:_MOST_REFUSED]]
    rest = len(report.refused) - len(named)
    more = f"; and {rest} more" if rest else ""
    return f"not used: {'; '.join(named)}{more}"


def _lines(report: "CalibrationReport", out: Path | None) -> Iterator[str]:
    """Yield the report for people: every run, other work, and how much narrower intervals are."""
    count = len(report.runs)
    refused = f", {len(report.refused)} rows refused" if report.refused else ""
    yield f"{report.machine}, {report.engine}: {count} run{'s' if count > 1 else ''}{refused}"
    yield ""
    yield f"{'tokens/s (seconds of requests)':<{_WORK}}{'measured':>9}  {'before':<26}{'after':<26}by the others"
    for row in report.runs:
        apart = "" if row.from_others is None else f"{row.from_others:+.1%}".replace("%", " %")
        yield f"{_about(row.prediction):<{_WORK}}{_number(row.run.value):>9}  {_ends(row.prediction)}{apart}".rstrip()
    if report.others:
        yield ""
        yield from (f"{_about(one):<{_WORK}}{'':>9}  {_ends(one)}".rstrip() for one in report.others)
    yield ""
    yield f"intervals of 90 % (high over low): {report.before:.2f} before, {report.after:.2f} after"
    if out is None:
        yield "the record is not written: give -o FILE, and then --hw FILE to any command"
    else:
        yield f"use the record with --hw {out} --engine {report.engine}"


def _about(one: "CalibratedPrediction") -> str:
    of = {"decode": "decode", "prefill": "prompt", "request": "request"}[one.of]
    return f"{of} {one.model} {one.format} {one.prompt_tokens}+{one.output_tokens}"[: _WORK - 1]


def _ends(one: "CalibratedPrediction") -> str:
    return "".join(f"{_interval(interval):<26}" for interval in (one.before, one.after))


def _interval(one: "Interval") -> str:
    return f"{_number(one.mid)} [{_number(one.low)} .. {_number(one.high)}]"


def _number(value: float) -> str:
    from helmsman.schemas.units import format_number

    return format_number(value, 3)
