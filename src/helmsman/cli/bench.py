"""`helm-bench`: prompt and decode speed of a plan on this machine, in llama-bench's columns."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import run_command
from helmsman.cli.bench_arguments import MOST, add_test_arguments
from helmsman.cli.bench_engines import engines_parser
from helmsman.cli.local_names import checkpoint_argument
from helmsman.cli.machine import add_machine_arguments
from helmsman.cli.output import emit
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.progress import progress
from helmsman.cli.strategies import add_strategy_arguments, request_of, strategy_named
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.executor.measuring.bench import Test
    from helmsman.schemas.plan import Plan

_OTHERS = """another form:
  helm-bench FILE.gguf --engine helm,llama.cpp    engines side by side; has its own --help"""


def build_parser(strategy: str | None = None) -> Parser:
    """Return the arguments of helm-bench for a strategy; None: those of all of them."""
    parser = command_parser(
        "helm-bench",
        "Measure prompt processing (pp) and token generation (tg) of a plan, at depths of the cache.",
        "helm-bench plan.json --checkpoint qwen3-0.6b.gguf -p 128 -n 64 -d 0,1024 -r 3",
    )
    parser.add_argument("plan", type=Path, nargs="?", metavar="PLAN", help="a Plan; or name --model and a machine")
    parser.add_argument("--model", metavar="NAME|DIR|FILE", help="plan for this model and these tests instead")
    parser.add_argument(
        "--checkpoint", type=checkpoint_argument, required=True, metavar="PLACE", help="directory or GGUF file"
    )
    add_test_arguments(parser)
    group = parser.add_argument_group("the run")
    group.add_argument("--storage", type=Path, metavar="DIR", action="append", help="where plans keep what is stored")
    group.add_argument(
        "--batch", type=int, default=1, metavar="N", help="with --model: sequences that advance together"
    )
    add_machine_arguments(parser)
    add_strategy_arguments(parser, strategy)
    parser.epilog = f"{parser.epilog}\n\n{_OTHERS}"
    parser.set_defaults(run=bench_plan)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(_parser_for, execute, argv, "helm-bench")


def _parser_for(arguments: list[str]) -> Parser:
    """Return the parser of several engines where --engine names some, else of a plan."""
    if any(word.partition("=")[0] == "--engine" for word in arguments):
        return engines_parser()
    return build_parser(strategy_named(arguments))


def execute(args: argparse.Namespace) -> int:
    """Do what the form of the arguments asks for."""
    code: int = args.run(args)
    return code


def bench_plan(args: argparse.Namespace) -> int:
    """Plan or read the plan, load it, run the tests, print."""
    from helmsman.cli.isa import select_from_environment
    from helmsman.executor.engine import Engine
    from helmsman.executor.measuring.bench import check_tests, longest_prompt, run_tests, tests_of
    from helmsman.executor.measuring.bench_report import bench_document, table
    from helmsman.executor.measuring.host_facts import facts_here
    from helmsman.executor.passes.phase_pass import caches_native, passes_of, rewinds
    from helmsman.executor.system.machine import Machine

    select_from_environment()
    tests = tests_of(args.n_prompt, args.n_gen, args.n_depth)
    _check(args, tests)
    plan = _plan(args, tests)
    passes = passes_of(plan)
    rewinding = rewinds(passes)
    check_tests(tests, plan, rewinding)
    longest = longest_prompt(tests, fills=not rewinding and not caches_native(passes))
    here = Machine.this()
    facts = facts_here(here)
    with (
        Engine.load(plan, args.checkpoint, here, prompt_tokens=longest, storage=args.storage or ()) as engine,
        progress(len(tests) * args.repetitions, args.quiet or args.json) as tell,
    ):
        results = run_tests(engine, tests, args.repetitions, longest, tell)
        document = bench_document(engine, str(args.checkpoint), facts, results)
    emit(args, document.to_json(), lambda: f"machine: {document.machine}\n\n{table(document)}")
    return 0


def _check(args: argparse.Namespace, tests: "Sequence[Test]") -> None:
    if (args.plan is None) == (args.model is None):
        raise UsageError("a plan or a model is expected", field="PLAN", remedy="give PLAN, or --model and a machine")
    if not 1 <= args.repetitions <= 10_000:
        raise UsageError("out of range", field="-r", value=args.repetitions, remedy="use 1 to 10000")
    if not 1 <= args.batch <= MOST or (args.plan is not None and args.batch != 1):
        raise UsageError("goes with --model", field="--batch", value=args.batch, remedy="plan with --batch")
    if args.plan is not None and args.activations != "auto":
        raise UsageError("goes with --model", field="--activations", value=args.activations, remedy="plan with it")
    if getattr(args, "explain", False) or getattr(args, "write_table", None):
        raise UsageError("what a plan is like", field="--explain, --write-table", remedy="ask helm-plan")
    if args.strategy == "all":
        raise UsageError("one plan is measured", field="--strategy", value="all", remedy="name a strategy")
    if not tests:
        raise UsageError("there is nothing to test", field="-p, -n", remedy="give a number above 0")


def _plan(args: argparse.Namespace, tests: "Sequence[Test]") -> "Plan":
    """Return the plan that is given, or one made for the tests."""
    from helmsman.cli.documents import plan_of
    from helmsman.cli.machine import machine, warn, warn_of_disturbed
    from helmsman.hwdb.load_model import check_context, load_model
    from helmsman.planner.decide import decide
    from helmsman.schemas.workload import Workload

    if args.plan is not None:
        return plan_of(args)
    model, hardware = load_model(args.model), machine(args)
    warn_of_disturbed(args, hardware)
    context = max(test.context for test in tests)
    prompt = max(1, *(test.prompt or test.depth for test in tests))
    check_context(model, context)
    workload = Workload(prompt_tokens=prompt, output_tokens=context - prompt, batch=args.batch, context=context)
    decision = decide(request_of(args, model, hardware, workload))
    for warning in decision.warnings:
        warn(args, args.in_flags(warning))
    return decision.plan
