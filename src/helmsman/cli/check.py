"""`helm-check`: does a plan run as fast as predicted? Exit code 4 when it does not."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import Parser, command_parser, emit, run_command, to_json
from helmsman.schemas.errors import TargetMissedError, UsageError

if TYPE_CHECKING:
    from helmsman.simulator.stream import Progress

_TOLERANCE = 0.08


def build_parser() -> Parser:
    """The arguments of helm-check."""
    parser = command_parser(
        "helm-check",
        "Compare predicted, simulated and measured seconds of a plan, term by term.",
        "helm-check plan.json --measured run.parquet",
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the Plan that was run")
    parser.add_argument(
        "--measured", type=Path, required=True, metavar="FILE", help="the Trace that helm-run --trace wrote"
    )
    parser.add_argument(
        "--simulated", type=Path, metavar="FILE", help="the Trace that helm-sim --trace wrote (default: replay)"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=_TOLERANCE,
        metavar="X",
        help=f"largest relative error of the decode step (default {_TOLERANCE}; twice the noise if larger)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Read, compare, print. Raises TargetMissedError when the decode step is beyond the tolerance."""
    if not 0.0 < args.tolerance <= 10.0:
        raise UsageError("must be between 0 and 10", field="--tolerance", value=args.tolerance)
    from helmsman.analysis.check import check
    from helmsman.analysis.report import document, table, verdict
    from helmsman.cli.documents import read_plan
    from helmsman.schemas.trace import read_trace
    from helmsman.simulator.pricing import cost_model

    plan = read_plan(args.plan)
    measured = read_trace(args.measured)
    simulated = read_trace(args.simulated) if args.simulated else None
    files = (str(args.measured), str(args.simulated))
    costs = cost_model(plan, str(args.plan))
    checked = check(plan, costs, measured, simulated, args.tolerance, files, _progress(args))
    emit(args, to_json(document(plan, checked)), lambda: table(plan, checked))
    if not checked.passed and not args.json:
        raise TargetMissedError(verdict(checked), remedy="profile again, or change --tolerance")
    return 0 if checked.passed else TargetMissedError.exit_code


def _progress(args: argparse.Namespace) -> "Progress":
    """A bar over the passes to expect, on a terminal and after a second only."""
    from tqdm import tqdm

    hidden = True if args.quiet or args.json else None
    return lambda passes: tqdm(passes, desc="expect", unit="pass", delay=1.0, disable=hidden, leave=False)
