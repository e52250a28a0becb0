"""`helm-check`: does a plan run, or serve, as fast as predicted, and as fast as before? Exit code 4 when it does not, 6
when nobody can tell."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import run_command
from helmsman.cli.contest import contest_parser
from helmsman.cli.gate import GATE_FORMS, add_form_argument, gate_parser
from helmsman.cli.output import emit
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.pictures import add_plot_argument, check_plot_argument, write_picture
from helmsman.cli.progress import bars
from helmsman.schemas.errors import DisturbedError, TargetMissedError, UsageError

if TYPE_CHECKING:
    from helmsman.schemas.served_comparison import Verdict
    from helmsman.simulator.stream import Progress

_TOLERANCE = 0.08
_SERVED_TOLERANCE = 0.15
_REMEDY = "profile again, or change --tolerance"


_FORMS = ("plan", "served", *GATE_FORMS)
"""What a first argument may say that is no plan's file."""
_OTHERS = """other forms:
  helm-check plan PLAN --measured FILE      as above
  helm-check served PLAN --served FILE --simulated FILE
  helm-check suite DIR                      measure and judge all cases of a folder (or --suite DIR)
  helm-check accept DIR                     make the newest measurements what later ones are compared with
  helm-check compare OLD NEW                two results of a suite, or two plans
  helm-check --engine llama.cpp PLAN --checkpoint FILE    its settings beside llama.cpp's own, run in turns
  each has its own --help; a plan's file of such a name is written ./suite"""


def build_parser(form: str | None = None) -> Parser:
    """Return the arguments of helm-check, or of its forms `plan` and `served`."""
    parser = command_parser(
        f"helm-check {form}" if form else "helm-check",
        "Compare predicted, simulated and measured seconds of a plan, term by term, or requests simulated and served.",
        "helm-check plan.json --measured run.parquet",
    )
    if form is None:
        parser.epilog = f"{parser.epilog}\n\n{_OTHERS}"
    else:
        add_form_argument(parser, form)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the Plan that was run")
    made = parser.add_mutually_exclusive_group(required=True)
    if form != "served":
        made.add_argument("--measured", type=Path, metavar="FILE", help="the Trace that helm-run --trace wrote")
    if form != "plan":
        made.add_argument(
            "--served", type=Path, metavar="FILE", help="the table of helm-bench-serve -o, vLLM or AIPerf"
        )
    simulated = (
        "the Trace that helm-sim --trace wrote (default: replay); with --served the table that helm-sim -o wrote"
    )
    parser.add_argument("--simulated", type=Path, metavar="FILE", help=simulated)
    tolerance = (
        f"largest relative error of the decode step and of the whole request (default {_TOLERANCE}); with --served "
        f"of throughput and latencies (default {_SERVED_TOLERANCE})"
    )
    parser.add_argument("--tolerance", type=float, metavar="X", help=tolerance)
    add_plot_argument(parser, "terms predicted and measured; with --served latencies simulated and measured")
    judged = "with --served: what must be within the tolerance, of throughput, ttft, tpot, e2e (default: all)"
    parser.add_argument("--judge", metavar="A,B", help=judged)
    parser.set_defaults(measured=None, served=None, run=check_plan)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(_parser_for, execute, argv, "helm-check")


def _parser_for(arguments: list[str]) -> Parser:
    """Return the parser of the form that the first argument names, else of a plan, of a suite with --suite, or of an
    engine's settings with --engine."""
    form = arguments[0] if arguments and arguments[0] in _FORMS else None
    if form is None and any(word.partition("=")[0] == "--suite" for word in arguments):
        return gate_parser("suite", named=True)
    if form is None and any(word.partition("=")[0] == "--engine" for word in arguments):
        return contest_parser()
    return gate_parser(form) if form in GATE_FORMS else build_parser(form)


def execute(args: argparse.Namespace) -> int:
    """Do what the form of the arguments asks for."""
    code: int = args.run(args)
    return code


def check_plan(args: argparse.Namespace) -> int:
    """Read, compare, print. Raises TargetMissedError when something is beyond the tolerance, DisturbedError when the
    measurement was disturbed."""
    if args.tolerance is None:
        args.tolerance = _TOLERANCE if args.served is None else _SERVED_TOLERANCE
    if not 0.0 < args.tolerance <= 10.0:
        raise UsageError("must be between 0 and 10", field="--tolerance", value=args.tolerance)
    check_plot_argument(args)
    if args.served is not None:
        return _served(args)
    if args.judge is not None:
        raise UsageError("is about served requests", field="--judge", remedy="leave it out, or use --served")
    return _measured(args)


def _served(args: argparse.Namespace) -> int:
    from helmsman.analysis.served_comparison import JUDGED, compare_served, served_table, served_verdict
    from helmsman.cli.documents import plan_of
    from helmsman.hwdb.machine_line import record_line
    from helmsman.schemas.read import digest
    from helmsman.schemas.served_table import read_served
    from helmsman.simulator.serving.imports import read_measured

    if args.simulated is None:
        remedy = "add the table of helm-sim PLAN --requests .. -o FILE.parquet"
        raise UsageError("required with --served", field="--simulated", remedy=remedy)
    judged = JUDGED if args.judge is None else tuple(args.judge.split(","))
    if unknown := set(judged) - set(JUDGED):
        raise UsageError("unknown figure", field="--judge", value=min(unknown), remedy=f"use {', '.join(JUDGED)}")
    plan = plan_of(args)
    simulated, measured = read_served(args.simulated), read_measured(args.served)
    files = (str(args.simulated), str(args.served))
    comparison = compare_served(digest(plan), simulated, measured, args.tolerance, judged, files)
    if args.plot:
        from helmsman.analysis.plots.serving_run import draw_latencies

        runs = [("simulated", simulated), ("measured", measured)]
        write_picture(args.plot, draw_latencies(runs, f"{plan.model.name} on {plan.hardware.name}"))
    emit(args, comparison.to_json(), lambda: f"{'machine':<13}{record_line(plan.hardware)}\n{served_table(comparison)}")
    remedy = "see what helm-bench-serve said of the first that failed or was refused" if comparison.lost else _REMEDY
    return _judge(comparison.verdict, served_verdict(comparison), remedy)


def _measured(args: argparse.Namespace) -> int:
    from helmsman.analysis.check import check
    from helmsman.analysis.report import document, table, verdict
    from helmsman.cli.documents import plan_of
    from helmsman.planner.cost.plan_costs import cost_model
    from helmsman.schemas.trace import read_trace

    plan = plan_of(args)
    measured = read_trace(args.measured)
    simulated = read_trace(args.simulated) if args.simulated else None
    files = (str(args.measured), str(args.simulated))
    costs = cost_model(plan, str(args.plan))
    checked = check(plan, costs, measured, simulated, args.tolerance, files, _progress(args))
    report = document(plan, checked)
    if args.plot:
        from helmsman.analysis.plots.check_bars import draw_check

        write_picture(args.plot, draw_check(report))
    emit(args, report.to_json(), lambda: table(plan, checked))
    return _judge(checked.verdict, verdict(checked))


def _judge(verdict: "Verdict", told: str, remedy: str = _REMEDY) -> int:
    """0 for a good verdict. Raises what another one is, `told` after the report; `remedy`: of a miss."""
    if verdict == "passed":
        return 0
    error = TargetMissedError if verdict == "missed" else DisturbedError
    remedies = {"missed": remedy, "disturbed": "measure again when nothing else runs"}
    raise error(told, remedy=remedies[verdict]).after_report()


def _progress(args: argparse.Namespace) -> "Progress":
    """Return a bar over the passes to expect, on a terminal and after a second only."""
    hidden = True if args.quiet or args.json else None
    return lambda passes: bars()(passes, desc="expect", unit="pass", delay=1.0, disable=hidden, leave=False)
