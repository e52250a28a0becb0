"""`--strategy all` and `--pareto`: what several strategies would do with one question, and with larger batches."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from helmsman.cli.output import emit, say
from helmsman.cli.parser import Parser
from helmsman.cli.strategies import ALL, with_flags
from helmsman.planner.registry import OWN, RECOMMENDED, method
from helmsman.schemas.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from helmsman.planner.request import PlanRequest
    from helmsman.schemas.comparison import Comparison

MOST_SEQUENCES = 2**16
"""Sequences of the largest batch that --pareto may name."""


def add_comparison_arguments(parser: Parser) -> None:
    """--pareto."""
    text = "plans for --batch sequences, twice as many and so on, N at most or as many as fit: latency against tokens/s"
    parser.add_argument("--pareto", type=int, nargs="?", const=MOST_SEQUENCES, metavar="N", help=text)


def compares(args: argparse.Namespace) -> bool:
    """Whether several plans are asked for."""
    return args.strategy == ALL or args.pareto is not None


def compared(args: argparse.Namespace, request: "PlanRequest[Any]") -> "Comparison":
    """Return the comparison. Raises UsageError for options that are not for this."""
    from helmsman.analysis.ask_strategies import check_several, compare

    if args.pareto is not None and not args.batch <= args.pareto <= MOST_SEQUENCES:
        remedy = f"use --batch ({args.batch}) or more, at most {MOST_SEQUENCES}"
        raise UsageError("not a number of sequences", field="--pareto", value=args.pareto, remedy=remedy)
    options = _given(args)
    check_several(options, args.strategy == ALL)
    given = {name: value for name, value in options.items() if name != "same_software"}
    return compare(request, OWN if args.strategy == ALL else (args.strategy,), given, args.pareto)


def _given(args: argparse.Namespace) -> dict[str, str | int | float | bool]:
    """Options of strategies that were given."""
    names = (RECOMMENDED, *OWN) if args.strategy == ALL else (args.strategy,)
    usual = {option.name: option.default for name in names for option, _ in with_flags(method(name))}
    return {name: getattr(args, name) for name, default in usual.items() if getattr(args, name) != default}


def show_comparison(
    args: argparse.Namespace,
    request: "PlanRequest[Any]",
    comparison: "Comparison",
    took: Mapping[str, float],
    drawn: str,
) -> None:
    """Print and write it. Raises InfeasibleError, after the table, when nothing fits, or keeps the limits."""
    from helmsman.analysis.comparison import nearest
    from helmsman.analysis.comparison_table import table
    from helmsman.planner.remedies import with_remedies

    kept = any(row.planned and not row.misses for row in comparison.rows)
    cost = (
        "\n\nseconds      " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in took.items())
        if args.verbose
        else ""
    )
    if kept:
        emit(args, comparison.to_json(), lambda: args.in_flags(table(comparison, args.verbose)) + cost + drawn)
        return
    if not (args.json or args.quiet):
        say(args.in_flags(table(comparison, args.verbose)) + cost)
    if any(row.planned for row in comparison.rows):
        remedy = next((row.remedy for row in comparison.rows if row.strategy == "optimal" and row.remedy), None)
        text = f"no strategy's plan keeps {comparison.options['slo']}"
        raise InfeasibleError(text, field="--slo", remedy=remedy or "allow more time")
    least = nearest(comparison.rows)
    remedy = f"{least.strategy}: {least.remedy}" if least else "use another machine or another --strategy"
    lacks = least.lacks if least else None
    error = InfeasibleError(f"no strategy fits {comparison.model} on {comparison.hardware}", remedy=remedy, lacks=lacks)
    raise with_remedies(error, request)
