"""`helm-plan`: will this model fit, how should it be split, how fast will it be?"""

import argparse
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helmsman.cli.app import run_command
from helmsman.cli.batches import batch_count, batch_size, check_alone
from helmsman.cli.colours import paint_for
from helmsman.cli.comparison import add_comparison_arguments, compared, compares, show_comparison
from helmsman.cli.engine_settings import (
    add_settings_arguments,
    check_settings,
    given_settings,
    show_emitted,
    show_reading,
)
from helmsman.cli.formats import BEST
from helmsman.cli.local_names import model_argument
from helmsman.cli.machine import add_machine_arguments, machine, warn, warn_of_disturbed
from helmsman.cli.output import emit, show, write_out, write_text
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.pictures import add_plot_argument, check_plot_argument, write_picture
from helmsman.cli.progress import timed_progress
from helmsman.cli.short_forms import (
    add_short_form_arguments,
    asks_for_studies,
    best_format,
    check_short_forms,
    chosen_row,
    purpose_in,
    show_study,
    with_format,
)
from helmsman.cli.strategies import ALL, add_engine_argument, add_strategy_arguments, request_of, strategy_named
from helmsman.planner.registry import OWN
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.planner.decision import Decision
    from helmsman.planner.request import PlanRequest
    from helmsman.planner.strategies.op_split.strategy import OpSplit
    from helmsman.schemas.fit_report import FitReport
    from helmsman.schemas.hardware import Hardware

_PICTURES = (
    "where every block lives and runs; for op-split the search; for --strategy all every strategy's speed, "
    "with --pareto latency against tokens/s"
)


_NEEDED_FIRST = (
    "-h", "--help", "--help-all", "--json", "-o", "-v", "--model", "--hw", "--gpu", "--cpu", "--ram", "--vram-avail",
    "--prompt-tokens", "--output-tokens", "--batch", "--engine", "--strategy", "--objective", "--format",
    "--kv-format", "--slo", "--emit", "--from",
)  # fmt: skip
"""The options that everybody needs."""
_OTHERS = (
    "more:\n  helm-plan --help-all                   every option\n"
    "  helm-plan --strategy op-split --help   those of one strategy\n"
    "  helm-list strategies                   names; also models, machines, gpus, cpus, formats"
)


def build_parser(strategy: str | None = None, whole: bool = True, purpose: str | None = None) -> Parser:
    """Return the arguments of helm-plan for a strategy; None: those of all of them; `whole`: --help shows them all;
    `purpose`: whose lengths are defaults."""
    parser = command_parser(
        "helm-plan",
        "Choose where weights, KV cache and work go, and predict how fast that is.",
        "helm-plan --model Qwen3-8B --hw rtx4060-laptop",
    )
    name = "catalogue name, checkpoint, plan, or local:NAME of one on the disk"
    parser.add_argument("--model", type=model_argument, required=True, metavar="NAME|DIR|FILE", help=name)
    add_machine_arguments(parser)
    _add_workload(parser)
    _add_drafts(parser)
    add_engine_argument(parser.add_argument_group("engine"))
    add_strategy_arguments(parser, strategy)
    add_comparison_arguments(parser)
    add_short_form_arguments(parser, purpose)
    add_settings_arguments(parser)
    add_plot_argument(parser, _PICTURES)
    if not whole:
        parser.show_first(_NEEDED_FIRST, _OTHERS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    _prepare()
    return run_command(_parser_for, execute, argv, "helm-plan")


def _parser_for(arguments: list[str]) -> Parser:
    """A strategy that is named has its options shown."""
    named = any(word.startswith(("--strategy", "--engine")) or word == "--help-all" for word in arguments)
    everything = "--help-all" in arguments and not any(
        word.startswith(("--strategy", "--engine")) for word in arguments
    )
    strategy = None if everything else strategy_named(arguments)
    return build_parser(strategy, named and "--help-all" not in arguments, purpose_in(arguments))


def execute(args: argparse.Namespace) -> int:
    """Answer which format is best, where that is asked, then plan or compare; print, write."""
    _check_plot(args)
    check_short_forms(args)
    check_settings(args, compares(args))
    report, hardware = None, None
    if args.format == BEST:
        hardware = machine(args)
        report = best_format(args, hardware)
        args = with_format(args, chosen_row(args, report).format)
    if args.settings is not None:
        return _read(args)
    if not asks_for_studies(args):
        return _plan(args, report, hardware)
    if hardware is None and (args.hw is not None or args.cpu is not None):
        hardware = machine(args)
    show_study(args, hardware, args.format)
    return 0


def _read(args: argparse.Namespace) -> int:
    """Print what is predicted for the settings that --from names, of weights in the format that they state where no
    other is asked for."""
    from helmsman.planner.settings.settings_format import settings_format

    text = given_settings(args)
    stated = settings_format(text, args.model) if args.format is None else None
    show_reading(args, text, plan_request(args if stated is None else with_format(args, stated)), stated)
    return 0


def _plan(args: argparse.Namespace, formats: "FitReport | None", hardware: "Hardware | None") -> int:
    """Plan, print, write; `formats`: the table of those that were tried, which is printed too; `hardware`: the machine,
    if it was read for it."""
    from helmsman.analysis.disturbance import unmarked_record
    from helmsman.planner.decide import decide

    steps = len(OWN) if args.strategy == ALL else 1 if compares(args) else None
    request = plan_request(args, hardware)
    long = compares(args) or request.batch is not None or request.batches is not None
    with timed_progress(steps, args.quiet or args.json or not long) as clock:
        request = replace(request, tell=clock.tell)
        if compares(args):
            warn_of_disturbed(args, request.hardware)
            comparison = compared(args, request)
        elif not args.max_context:
            warn(args, unmarked_record(request.hardware))
            decision = decide(request)
        took = clock.parts()
    if compares(args):
        if args.plot and any(row.planned for row in comparison.rows):
            from helmsman.analysis.plots.figures import comparison_figure

            write_picture(args.plot, comparison_figure(comparison))
        show_comparison(args, request, comparison, took, _drawn(args))
        return 0
    if args.max_context:
        return _print_longest(args, request)
    for warning in decision.warnings:
        print(f"helm-plan: warning: {args.in_flags(warning)}", file=sys.stderr)
    if args.emit is not None:
        show_emitted(args, decision, request)
        return 0
    decision, disturbed = _told_disturbance(decision)
    if args.plot:
        _draw(args, decision)
    document, reasons = _reasons(decision) if getattr(args, "explain", False) else (decision.plan.to_json(), "")
    document, table = (document, "") if formats is None else (formats.to_json(), f"{_formats_text(formats)}\n\n")
    write_out(args, decision.plan.to_json())
    _write_table(args, decision)
    show(
        args,
        document,
        lambda: (
            table
            + _explained(decision, args.verbose, clock.seconds, took if request.batch is None else {})
            + disturbed
            + reasons
            + _drawn(args)
        ),
    )
    return 0


def _formats_text(report: "FitReport") -> str:
    from helmsman.studies.fitting.words import formats_text

    return formats_text(report)


def plan_request(args: argparse.Namespace, hardware: "Hardware | None" = None) -> "PlanRequest[Any]":
    """Return the request that the arguments make, on the machine that they name, or `hardware`, which was read before.
    Raises what is wrong with them."""
    from helmsman.hwdb.load_model import load_model
    from helmsman.planner.read_request import COUNTS, drafts_of, workload_of

    check_alone(args)
    model = load_model(args.model)
    workload = workload_of(model, **{name: getattr(args, name) for name in COUNTS})
    if args.routing is not None:
        from helmsman.planner.read_routing import routed

        workload = routed(workload, args.routing, model)
    drafts = drafts_of(args.draft, args.draft_tokens, args.acceptance)
    return replace(request_of(args, model, hardware or machine(args), workload), drafts=drafts)


_COLLECTED = 250_000
"""Values that are made before cycles are looked for: more than most questions make. Nearly all that a search makes goes
by itself, and one look for cycles takes 20 to 30 ms."""


def _prepare() -> None:
    """Set what suits a process that plans and ends: products of small matrices gain nothing from threads that wait for
    them, unless the user says otherwise, and hardly anything is garbage."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_COLLECTED, *gc.get_threshold()[1:])


def _draw(args: argparse.Namespace, decision: "Decision") -> None:
    """The search of op-split, or the chosen plan of any other strategy."""
    from helmsman.analysis.plots.figures import search_figure
    from helmsman.analysis.plots.layer_strip import draw_layers

    searched = None if decision.searched is None else _op_split(decision)
    plan = decision.plan
    write_picture(args.plot, draw_layers(plan) if searched is None else search_figure(searched, plan))


def _write_table(args: argparse.Namespace, decision: "Decision") -> None:
    """The prices of op-split's search as a table to edit and give back."""
    if getattr(args, "write_table", None) is not None:
        from helmsman.planner.strategies.op_split.entry import tabulated

        write_text(args.write_table, tabulated(_op_split(decision)).to_json() + "\n")


def _op_split(decision: "Decision") -> "OpSplit":
    from helmsman.planner.strategies.op_split.strategy import OpSplit

    assert isinstance(decision.searched, OpSplit), "of op-split alone"
    return decision.searched


def _told_disturbance(decision: "Decision") -> "tuple[Decision, str]":
    """Return the decision whose plan has it as evidence, and the line, where its record was disturbed."""
    from helmsman.analysis.disturbance import disturbance_line, disturbance_of, with_evidence

    disturbance = disturbance_of(decision.plan)
    if disturbance is None:
        return decision, ""
    return replace(decision, drafted=with_evidence(decision.plan, disturbance)), f"\n{disturbance_line(disturbance)}"


def _reasons(decision: "Decision") -> tuple[str, str]:
    """Return the texts that --explain prints with --json, and after the table."""
    from helmsman.analysis.explanation_table import table

    assert decision.explained is not None, "strategies that cannot say refuse the option"
    explanation = decision.explained()
    return explanation.to_json(), f"\n\n{table(explanation)}"


def _drawn(args: argparse.Namespace) -> str:
    return f"\n\nplot         {args.plot}" if args.plot else ""


def _check_plot(args: argparse.Namespace) -> None:
    check_plot_argument(args)
    if args.max_context and args.strategy == ALL:
        raise UsageError(f"does not go with --strategy {ALL}", field="--max-context", remedy="name one strategy")
    if args.max_context and (args.plot or args.pareto is not None):
        flag = "--plot" if args.plot else "--pareto"
        raise UsageError("does not go with --max-context", field=flag, remedy="leave one of them out")


def _add_workload(parser: Parser) -> None:
    group = parser.add_argument_group("workload")
    group.add_argument("--prompt-tokens", type=int, default=128, metavar="N", help="of a prompt (default 128)")
    group.add_argument("--output-tokens", type=int, default=128, metavar="N", help="to make (default 128)")
    group.add_argument("--context", type=int, metavar="N", help="tokens the KV cache holds (default: their sum)")
    known = "of the prompt, known before: keys and values are kept and not computed again"
    group.add_argument("--prefix-tokens", type=int, default=0, metavar="N", help=known)
    batch = "sequences that advance together; max: as many as fit; best: as many as make the most tokens/s"
    group.add_argument("--batch", type=batch_size, default=1, metavar="N|max|best", help=batch)
    batches = "batches, one after the other or in turns; best: as many as make the most tokens/s"
    group.add_argument("--batches", type=batch_count, default=1, metavar="N|best", help=batches)
    routing = "which experts tokens choose, as helm-fit-routing writes it (default: all of a layer alike)"
    group.add_argument("--routing", type=Path, metavar="FILE", help=routing)
    group.add_argument("--max-context", action="store_true", help="answer the longest context that fits")


def _add_drafts(parser: Parser) -> None:
    group = parser.add_argument_group("drafts")
    what = "what drafts tokens: mtp, the model's own draft head, or a smaller model of the same vocabulary"
    group.add_argument("--draft", metavar="mtp|MODEL", help=what)
    group.add_argument("--draft-tokens", type=int, metavar="K", help="drafts that every decode step verifies")
    accepted = "assumed probability that a draft is accepted where all before it were, from 0 to 1"
    group.add_argument("--acceptance", type=float, metavar="A", help=accepted)


def _explained(decision: "Decision", verbose: bool, seconds: float, parts: Mapping[str, float]) -> str:
    """Return the decision; with `verbose` also what it cost, part by part (PARK-50)."""
    from helmsman.planner.words.explain import explain

    cost = f"\n\nsearch       {decision.evaluated} candidates priced, {seconds:.2f} s in all" if verbose else ""
    if verbose and parts:
        searched = sum(took for name, took in parts.items() if name != "plan")
        named = {**parts, "plan": seconds - searched}
        cost += ": " + ", ".join(f"{name} {took:.3f} s" for name, took in named.items())
    return explain(decision, verbose, paint_for(sys.stdout)) + cost


def _print_longest(args: argparse.Namespace, request: "PlanRequest[Any]") -> int:
    from helmsman.planner.fits import longest_context
    from helmsman.schemas.errors import InfeasibleError
    from helmsman.schemas.longest_context import LongestContext

    context = longest_context(request)
    if context == 0:
        batch = f" for {args.batch} sequences" if args.batch > 1 else ""
        remedy = "use more memory, a smaller format or a smaller --batch"
        raise InfeasibleError(f"not even one token of context fits{batch}", remedy=remedy)
    answer = LongestContext(
        model=request.model.name,
        hardware=request.hardware.name,
        max_context=context,
        limited_by="model" if context == request.model.max_context else "memory",
    )
    text = f"longest context that fits: {context} tokens, limited by the {answer.limited_by}"
    emit(args, answer.to_json(), lambda: text)
    return 0
