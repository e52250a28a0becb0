"""The forms of `helm-check` about suites: `suite`, `accept` and `compare`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.output import emit, say, write_text
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.pictures import add_plot_argument, check_plot_argument, write_picture
from helmsman.cli.progress import progress
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.gate.cases import Suite
    from helmsman.schemas.gate_report import GateReport


GATE_FORMS = ("suite", "accept", "compare")
"""The forms of `helm-check` that this module has."""


def gate_parser(form: str, named: bool = False) -> Parser:
    """Return the arguments of a form; `named`: the folder comes with --suite, as in `helm-check --suite DIR`."""
    about, example, add_arguments, run = _PARSERS[form]
    parser = command_parser("helm-check" if named else f"helm-check {form}", about, example)
    if named:
        parser.add_argument("--suite", type=Path, metavar="DIR", required=True, help="the folder of the cases")
    else:
        add_form_argument(parser, form)
    if not named and form != "compare":
        parser.add_argument("suite", type=Path, metavar="DIR", help="the folder of the cases")
    add_arguments(parser)
    parser.set_defaults(run=run)
    return parser


def add_form_argument(parser: Parser, form: str) -> None:
    """Add the word that names the form."""
    parser.add_argument("form", choices=(form,), metavar=form, help="this form of helm-check")


def _add_suite_arguments(parser: Parser) -> None:
    add = parser.add_argument
    _add_case_argument(parser)
    python = (
        "an interpreter with the old version: its runs and this one's take turns (default: compare with the history)"
    )
    add("--baseline-python", type=Path, metavar="PYTHON", help=python)
    kept = "add what is measured to the histories (default)"
    add("--record", action=argparse.BooleanOptionalAction, default=True, help=kept)
    _add_report_arguments(parser)
    add_plot_argument(parser, "the history of the case that --case names")


def _add_case_argument(parser: Parser) -> None:
    told = "only this case; may be given several times (default: all)"
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help=told)


def _add_compare_arguments(parser: Parser) -> None:
    parser.add_argument("old", type=Path, metavar="OLD", help="what helm-check suite -o wrote, or a plan")
    parser.add_argument("new", type=Path, metavar="NEW", help="another of the same kind")
    _add_report_arguments(parser)


def _add_report_arguments(parser: Parser) -> None:
    """Add the forms of a report beside text and JSON."""
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write a Markdown summary")
    parser.add_argument("--annotations", action="store_true", help="also print annotations for GitHub, after the text")


def run_suite_command(args: argparse.Namespace) -> int:
    """Measure and judge a suite. Raises what its report means, after it: TargetMissedError where a case blocks, the
    error of a case that failed, DisturbedError where one is undecided."""
    from helmsman.gate.cases import read_suite
    from helmsman.gate.interpreters import check_interpreter
    from helmsman.gate.suite import GateRun, run_suite

    _check_forms(args)
    suite = read_suite(args.suite, args.case)
    if args.plot is not None and len(suite.cases) != 1:
        raise UsageError("several cases have no common history", field="--plot", remedy="name one with --case")
    python = None if args.baseline_python is None else check_interpreter(args.baseline_python)
    with progress(_runs(suite, 1 if python is None else 2), args.quiet or args.json) as tell:
        report = run_suite(suite, GateRun(_now(), python, args.record), tell)
    if args.plot is not None:
        _draw(args.plot, suite)
    return _show(args, report)


def run_compare_command(args: argparse.Namespace) -> int:
    """Compare two results or two plans. Raises as `run_suite_command`."""
    from helmsman.gate.comparison import compare_files

    _check_forms(args)
    return _show(args, compare_files(args.old, args.new, _now()))


def run_accept_command(args: argparse.Namespace) -> int:
    """Accept the newest measurement of every case."""
    from helmsman.gate.acceptance import accept_suite, acceptance_text
    from helmsman.gate.cases import read_suite

    acceptance = accept_suite(read_suite(args.suite, args.case))
    emit(args, acceptance.to_json(), lambda: acceptance_text(acceptance))
    return 0


def _check_forms(args: argparse.Namespace) -> None:
    if args.annotations and (args.json or args.quiet):
        remedy = "leave out --json and -q; -o writes the JSON document to a file"
        raise UsageError("annotations are text among other text", field="--annotations", remedy=remedy)
    if hasattr(args, "plot"):
        check_plot_argument(args)


def _runs(suite: "Suite", sides: int) -> int:
    return sum(sides * case.document.runs for case in suite.cases if case.document.measure.by != "trace")


def _now() -> str:
    from datetime import UTC, datetime

    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _draw(path: Path, suite: "Suite") -> None:
    from helmsman.gate.history import read_history
    from helmsman.gate.history_picture import draw_history

    case = suite.cases[0]
    write_picture(path, draw_history(case.name, read_history(case.history)))


def _show(args: argparse.Namespace, report: "GateReport") -> int:
    """Write and print the report in all forms that were asked for."""
    from helmsman.gate.annotations import annotations
    from helmsman.gate.junit import junit_xml
    from helmsman.gate.markdown import markdown
    from helmsman.gate.outcome import suite_error
    from helmsman.gate.report_text import report_text

    if args.junit is not None:
        write_text(args.junit, junit_xml(report))
    if args.markdown is not None:
        write_text(args.markdown, markdown(report))
    emit(args, report.to_json(), lambda: report_text(report, args.verbose))
    if args.annotations and (lines := annotations(report)):
        say(lines)
    error = suite_error(report)
    if error is not None:
        raise error.after_report()
    return 0


_PARSERS: dict[str, tuple[str, str, Callable[[Parser], None], Callable[[argparse.Namespace], int]]] = {
    "suite": (
        "Measure all cases of a folder and compare them with what was accepted: did something become slower, or the "
        "model wrong? Exit code 4 when a case blocks, 6 when nobody can tell.",
        "helm-check suite gate --junit gate.xml",
        _add_suite_arguments,
        run_suite_command,
    ),
    "accept": (
        "Make the newest measurement of every case what later ones are compared with.",
        "helm-check accept gate --case qwen3-0.6b",
        _add_case_argument,
        run_accept_command,
    ),
    "compare": (
        "Compare two results of a suite, run by run, or two plans, as they are predicted.",
        "helm-check compare before.json after.json",
        _add_compare_arguments,
        run_compare_command,
    ),
}
"""Of every form: what it does, an example, its arguments, and what runs it."""
