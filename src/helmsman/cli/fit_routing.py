"""`helm-fit-routing`: what recorded routing says of distinct experts and of slots, as plans take it."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import run_command
from helmsman.cli.output import emit
from helmsman.cli.parser import Parser, command_parser

if TYPE_CHECKING:
    from helmsman.schemas.routing import Routing, RoutingCurve


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command(_parser(), _execute, argv)


def _parser() -> Parser:
    parser = command_parser(
        "helm-fit-routing",
        "Fit a routing to traces that helm-run --routing-trace recorded: popularity, distinct experts by tokens of a "
        "pass, hits by slots, cold and warm, with the spread between traces.",
        "helm-fit-routing chat.parquet code.parquet -o routing.json",
    )
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a trace of one text; all of one model")
    return parser


def _execute(args: argparse.Namespace) -> int:
    from helmsman.analysis.routing_fit import NamedTrace, fit_routing
    from helmsman.schemas.routing_trace import read_routing_trace

    routing = fit_routing([NamedTrace(str(path), read_routing_trace(path)) for path in args.traces])
    emit(args, routing.to_json(), lambda: "\n".join(_summary(routing)))
    return 0


def _summary(routing: "Routing") -> Iterator[str]:
    """Yield a line a layer: distinct experts of the longest passes, and hits of half as many slots as experts."""
    yield f"{routing.model}: {len(routing.layers)} layers, {routing.traces} traces"
    hits = f"{'hits, used last':<24}  {'cold':>5}  hits, most popular"
    yield f"{'layer':>5}  {'distinct experts':<26}  {'slots':>5}  {hits}"
    for one in routing.layers:
        experts = len(one.popularity or ())
        slots = max(1, experts // 2)
        texts = {curve.eviction: _at(curve.warm, slots) for curve in one.hits if curve.tokens == 1}
        cold = next((_middle(curve.cold, slots) for curve in one.hits if curve.cold is not None), 0.0)
        distinct = "" if one.distinct is None else f"{one.distinct.mid[-1]:.1f} of {one.distinct.at[-1]} tokens"
        recent, popular = texts.get("least-recent", ""), texts.get("popularity", "")
        yield f"{one.layer:>5}  {distinct:<26}  {slots:>5}  {recent:<24}  {cold:>5.0%}  {popular}"


def _place(curve: "RoutingCurve", slots: int) -> int:
    return min(range(len(curve.at)), key=lambda place: abs(curve.at[place] - slots))


def _middle(curve: "RoutingCurve", slots: int) -> float:
    return curve.mid[_place(curve, slots)]


def _at(curve: "RoutingCurve", slots: int) -> str:
    """Return `61% [52% .. 70%]`, or the median alone of one trace."""
    place = _place(curve, slots)
    spread = "" if curve.low is None or curve.high is None else f" [{curve.low[place]:.0%} .. {curve.high[place]:.0%}]"
    return f"{curve.mid[place]:.0%}{spread}"
