"""`helm-plan`: will this model fit, how should it be split, how fast will it be?"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from helmsman.cli.app import Parser, command_parser, emit, run_command, show, to_json, write_out
from helmsman.cli.batches import BEST, MAX, batch_count, batch_size, check_alone, largest
from helmsman.cli.comparison import add_comparison_arguments, compare, compares, show_comparison
from helmsman.cli.formats import check_compression, check_formats
from helmsman.cli.machine import add_machine_arguments, warn, warn_of_disturbed
from helmsman.cli.native_formats import decide_mixed, resolve_formats
from helmsman.cli.pictures import add_plot_argument, check_plot_argument, draw_comparison, draw_search, draw_strip
from helmsman.cli.strategies import add_strategy_arguments, decide, layer_split, refuse_foreign
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.cli.strategies import Decided
    from helmsman.planner.decide import Decision
    from helmsman.planner.strategies.layer_split import LayerSplit
    from helmsman.planner.tensor_formats import Formats
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.model import Model
    from helmsman.schemas.workload import Workload

_PICTURES = (
    "where every block lives and runs; for op-split the search; for --strategy all every strategy's speed, "
    "with --pareto latency against tokens/s"
)


def build_parser() -> Parser:
    """The arguments of helm-plan."""
    parser = command_parser(
        "helm-plan",
        "Choose where weights, KV cache and work go, and predict how fast that is.",
        "helm-plan --model Qwen3-8B --hw rtx4060-laptop",
    )
    parser.add_argument("--model", required=True, metavar="NAME|DIR|FILE", help="catalogue name, checkpoint or plan")
    add_machine_arguments(parser)
    _add_workload(parser)
    add_strategy_arguments(parser)
    add_comparison_arguments(parser)
    add_plot_argument(parser, _PICTURES)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Plan, print, write."""
    from helmsman.analysis.disturbance import unmarked_record

    _check_plot(args)
    question = question_of(args)
    if compares(args):
        warn_of_disturbed(args, question.hardware)
        return _compare(args, question)
    if args.max_context and args.strategy == "layer-split":
        refuse_foreign(args)
        return _print_longest(args, layer_split(args, question.model, question.hardware, question.workload))
    warn(args, unmarked_record(question.hardware))
    began = perf_counter()
    decision, searched, parts = decided(args, question)
    seconds = perf_counter() - began
    decision, disturbed = _told_disturbance(decision)
    if args.plot and searched is not None:
        draw_search(args.plot, searched, decision)
    elif args.plot:
        draw_strip(args.plot, decision.plan)
    document, reasons = _reasons(decision) if args.explain else (decision.plan.to_json(), "")
    write_out(args, decision.plan.to_json())
    show(
        args, document, lambda: _explained(decision, args.verbose, seconds, parts) + disturbed + reasons + _drawn(args)
    )
    return 0


class PlanQuestion(NamedTuple):
    """What is to be planned; `formats`: those that tensors have of their own."""

    model: "Model"
    hardware: "Hardware"
    formats: "Formats"
    workload: "Workload"


def question_of(args: argparse.Namespace) -> PlanQuestion:
    """What the arguments ask; sets `args.format` where a file says it. Raises what is wrong with them."""
    from helmsman.cli.machine import machine
    from helmsman.hwdb.load_model import load_model

    check_alone(args)
    model, hardware = load_model(args.model), machine(args)
    formats = resolve_formats(args, model)
    check_compression(args)
    if not formats:
        check_formats(args, model)
    return PlanQuestion(model, hardware, formats, _workload(args, model))


def decided(args: argparse.Namespace, question: PlanQuestion) -> "Decided":
    """What is decided on the question, for one strategy or the recommended one. Raises what that raises."""
    model, hardware, formats, workload = question
    return decide_mixed(args, model, formats, partial(_answer, args, model, hardware, workload))


def _answer(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "Decided":
    """What is decided for the batches that the arguments ask for, or leave open."""
    if BEST in (args.batch, args.batches):
        from helmsman.cli.most_tokens import most_tokens

        return most_tokens(args, workload, partial(decide, args, model, hardware))
    asked = partial(decide, args, model, hardware)
    return largest(workload, asked) if args.batch == MAX else asked(workload)


def _told_disturbance(decision: "Decision") -> "tuple[Decision, str]":
    """The decision whose plan has it as evidence, and the line, where its record was disturbed."""
    from helmsman.analysis.disturbance import disturbance_line, disturbance_of, with_evidence

    found = disturbance_of(decision.plan)
    if found is None:
        return decision, ""
    return replace(decision, plan=with_evidence(decision.plan, found)), f"\n{disturbance_line(found)}"


def _reasons(decision: "Decision") -> tuple[str, str]:
    """What --explain prints with --json, and after the table."""
    from helmsman.analysis.explanation_table import table

    assert decision.explained is not None, "strategies that cannot say refuse the option"
    found = decision.explained()
    return found.to_json(), f"\n\n{table(found)}"


def _compare(args: argparse.Namespace, question: PlanQuestion) -> int:
    found, took = compare(args, question.model, question.hardware, question.workload)
    if args.plot and any(row.planned for row in found.rows):
        draw_comparison(args.plot, found)
    show_comparison(args, found, took, _drawn(args))
    return 0


def _drawn(args: argparse.Namespace) -> str:
    return f"\n\nplot         {args.plot}" if args.plot else ""


def _check_plot(args: argparse.Namespace) -> None:
    check_plot_argument(args)
    if args.max_context and (args.plot or args.pareto is not None):
        flag = "--plot" if args.plot else "--pareto"
        raise UsageError("does not go with --max-context", field=flag, remedy="leave one of them out")


def _add_workload(parser: Parser) -> None:
    group = parser.add_argument_group("workload")
    group.add_argument("--prompt-tokens", type=int, default=128, metavar="N")
    group.add_argument("--output-tokens", type=int, default=128, metavar="N")
    group.add_argument("--context", type=int, metavar="N", help="tokens the KV cache holds (default: their sum)")
    known = "of the prompt, known before: keys and values are kept and not computed again"
    group.add_argument("--prefix-tokens", type=int, default=0, metavar="N", help=known)
    batch = "sequences that advance together; max: as many as fit; best: as many as make the most tokens/s"
    group.add_argument("--batch", type=batch_size, default=1, metavar="N|max|best", help=batch)
    batches = "batches, one after the other or in turns; best: as many as make the most tokens/s"
    group.add_argument("--batches", type=batch_count, default=1, metavar="N|best", help=batches)
    group.add_argument("--max-context", action="store_true", help="answer the longest context that fits")


def _workload(args: argparse.Namespace, model: "Model") -> "Workload":
    from helmsman.hwdb.load_model import check_context
    from helmsman.schemas.workload import Workload

    for name in ("prompt_tokens", "output_tokens", "batch", "batches", "context"):
        value = getattr(args, name)
        if value is not None and value not in (MAX, BEST) and not 1 <= value <= 10**9:
            raise UsageError("must be between 1 and 1000000000", field=f"--{name.replace('_', '-')}", value=value)
    needed = args.prompt_tokens + args.output_tokens
    context = args.context or needed
    if context < needed:
        raise UsageError(
            f"is shorter than prompt + output ({needed} tokens)",
            field="--context",
            value=context,
            remedy=f"use --context {needed} or more",
        )
    check_context(model, context)
    if not 0 <= args.prefix_tokens < args.prompt_tokens:
        remedy = f"use 0 to {args.prompt_tokens - 1} of the {args.prompt_tokens} tokens of a prompt"
        raise UsageError("leaves nothing to compute", field="--prefix-tokens", value=args.prefix_tokens, remedy=remedy)
    names = ("prompt_tokens", "output_tokens", "batch", "batches", "prefix_tokens")
    shape = {name: getattr(args, name) for name in names}
    shape.update({name: 1 for name in ("batch", "batches") if shape[name] in (MAX, BEST)})
    return Workload(**shape, context=context)


def _explained(decision: "Decision", verbose: bool, seconds: float, parts: Mapping[str, float]) -> str:
    """The decision; with `verbose` also what it cost, part by part (PARK-50)."""
    from helmsman.planner.explain import explain

    cost = f"\n\nsearch       {decision.evaluated} candidates priced, {seconds:.2f} s in all" if verbose else ""
    if verbose and parts:
        named = {**parts, "plan": seconds - sum(parts.values())}
        cost += ": " + ", ".join(f"{name} {took:.3f} s" for name, took in named.items())
    return explain(decision, verbose) + cost


def _print_longest(args: argparse.Namespace, split: "LayerSplit") -> int:
    from helmsman.planner.strategies.layer_search import longest_context
    from helmsman.schemas.errors import InfeasibleError

    context = longest_context(split)
    if context == 0:
        batch = f" for {args.batch} sequences" if args.batch > 1 else ""
        raise InfeasibleError(
            f"not even one token of context fits{batch}",
            remedy="use more memory, a smaller format or a smaller --batch",
        )
    limit = "model" if context == split.model.longest_context else "memory"
    names = {"model": split.model.name, "hardware": split.roles.hardware.name}
    content = {**names, "max_context": context, "limited_by": limit}
    emit(args, to_json(content), lambda: f"longest context that fits: {context} tokens, limited by the {limit}")
    return 0
