"""`helm-check --engine`: which settings of an engine are faster, and had Helm called it?"""

import argparse
from pathlib import Path

from helmsman.cli.engine_arguments import add_interpreter_argument
from helmsman.cli.local_names import checkpoint_argument
from helmsman.cli.output import emit
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.progress import progress
from helmsman.schemas.errors import DisturbedError, TargetMissedError

_RUNS = 7


def contest_parser() -> Parser:
    """Return the arguments of helm-check with --engine."""
    parser = command_parser(
        "helm-check",
        "Run an engine with the settings that Helm writes for a plan, with those it has by itself (its default, or "
        "with --fit what it places), and with Helm's second choice, in fresh processes that take turns; say which are "
        "faster, by how much, and whether Helm had called it. Exit code 4 where a call was wrong, 6 where others took "
        "the processors.",
        "helm-check --engine llama.cpp plan.json --checkpoint qwen3-0.6b.gguf",
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a Plan, best one of --engine llama.cpp")
    parser.add_argument("--engine", choices=("llama.cpp",), required=True, metavar="NAME", help="llama.cpp")
    add_interpreter_argument(parser)
    parser.add_argument(
        "--checkpoint", type=checkpoint_argument, required=True, metavar="FILE", help="GGUF file of the plan's model"
    )
    fit = "compare with what llama.cpp's own --fit places, instead of its default, which has all layers on the GPU"
    parser.add_argument("--fit", action="store_true", help=fit)
    runs = f"processes of each (default {_RUNS}, the fewest that can differ significantly)"
    parser.add_argument("--runs", type=int, default=_RUNS, metavar="N", help=runs)
    hardware = "the machine that predictions are for: a known one, a record, or this one (default: this)"
    parser.add_argument("--hw", metavar="NAME|FILE|this", help=hardware)
    parser.set_defaults(run=run_contest)
    return parser


def run_contest(args: argparse.Namespace) -> int:
    """Measure, judge, print. Raises TargetMissedError where a call was wrong, DisturbedError where nobody can tell."""
    from helmsman.cli.documents import plan_of
    from helmsman.engines.contest import referee
    from helmsman.engines.contest_text import contest_table, verdict_line
    from helmsman.library import load_hardware

    plan = plan_of(args)
    hardware = None if args.hw is None else load_hardware(args.hw)
    with progress(None, args.quiet or args.json) as tell:
        contest = referee(
            plan,
            args.checkpoint,
            engine=args.engine,
            python=args.engine_python,
            runs=args.runs,
            own_choice="fit" if args.fit else "default",
            hardware=hardware,
            tell=tell,
        )
    emit(args, contest.to_json(), lambda: contest_table(contest))
    if contest.verdict == "right":
        return 0
    if contest.verdict == "wrong":
        remedy = "calibrate the engine on this machine with a measured run, or profile it again"
        raise TargetMissedError(verdict_line(contest), remedy=remedy).after_report()
    raise DisturbedError(verdict_line(contest), remedy="measure again when nothing else runs").after_report()
