"""`helm-sim`: what does a plan do, tick by tick?"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import run_command
from helmsman.cli.documents import plan_of
from helmsman.cli.output import emit, write_text
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.pictures import add_plot_argument, check_plot_argument, layers_drawn, write_picture
from helmsman.cli.progress import bars
from helmsman.cli.serving import execute_serving
from helmsman.cli.serving_arguments import add_serving_arguments, check_serving_arguments
from helmsman.schemas.errors import UsageError
from helmsman.schemas.write import whole_file

if TYPE_CHECKING:
    from helmsman.schemas.plan import Plan
    from helmsman.schemas.trace import Span
    from helmsman.simulator.stream import Progress

_STEPS = 8
_MOST_STEPS = 1000


def build_parser() -> Parser:
    """Return the arguments of helm-sim."""
    parser = command_parser(
        "helm-sim",
        "Replay a plan in virtual time: TTFT, TPOT, tokens/s, and what every resource does; or serve requests with it.",
        "helm-sim plan.json --timeline t.json\n  helm-sim plan.json --requests azure.csv --slo ttft=2s,tpot=100ms",
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a Plan, as helm-plan --json prints it")
    parser.add_argument("--timeline", type=Path, metavar="FILE", help="timeline for ui.perfetto.dev, at most 16 MiB")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the simulated Trace (Parquet)")
    parser.add_argument(
        "--steps", type=int, default=_STEPS, metavar="N", help=f"decode steps in those files (default {_STEPS})"
    )
    add_plot_argument(parser, "a decoder layer: what every device and link does; with --per-layer all of them")
    parser.add_argument("--per-layer", action="store_true", help="each layer's computation against loading the next")
    parser.add_argument("--layer", metavar="N|N-M", help="the layers to draw (default: one in the middle)")
    add_serving_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Read, replay, write, print."""
    if not 0 <= args.steps <= _MOST_STEPS:
        raise UsageError(f"must be between 0 and {_MOST_STEPS}", field="--steps", value=args.steps)
    check_plot_argument(args)
    check_serving_arguments(args)
    if args.requests is not None:
        return execute_serving(args, plan_of(args))
    if args.per_layer and args.layer is not None:
        raise UsageError("--per-layer draws every layer", field="--layer", remedy="leave one of them out")
    from helmsman.planner.cost.plan_costs import cost_model
    from helmsman.simulator.drafts import simulate_drafts
    from helmsman.simulator.per_layer import per_layer
    from helmsman.simulator.pricing import median_price
    from helmsman.simulator.report import document, layers_table, table
    from helmsman.simulator.stream import simulate, timeline
    from helmsman.simulator.synchronisation import synchronisation

    plan = plan_of(args)
    layers = layers_drawn(args.layer, plan.model.layers)
    price = median_price(plan, str(args.plan))
    costs = cost_model(plan, str(args.plan))
    slowed, between = costs.slowed(), costs.between()
    stream = simulate(plan, price, between, _progress(args), slowed)
    if args.trace or args.timeline:
        _write(args, plan, list(timeline(plan, price, between, args.steps, slowed)))
    passes = per_layer(plan, price, slowed, between) if args.per_layer else ()
    if args.plot and args.per_layer:
        from helmsman.analysis.plots.layer_overlap import draw_overlaps

        write_picture(args.plot, draw_overlaps(plan, passes))
    elif args.plot:
        from helmsman.analysis.plots.figures import gantt_figure

        write_picture(args.plot, gantt_figure(plan, price, layers, between, slowed))
    waits = synchronisation(plan)
    drafts = simulate_drafts(plan, max(1, plan.workload.decode_steps))
    text = table(plan, stream, waits, drafts) + layers_table(passes) + _written(args)
    emit(args, document(plan, stream, waits, passes, drafts).to_json(), lambda: text)
    return 0


def _progress(args: argparse.Namespace) -> "Progress":
    """Return a bar over the decode steps to replay, on a terminal and after a second only."""
    hidden = True if args.quiet or args.json else None
    return lambda steps: bars()(steps, desc="replay", unit="step", delay=1.0, disable=hidden, leave=False)


def _write(args: argparse.Namespace, plan: "Plan", spans: "list[Span]") -> None:
    from helmsman.schemas.read import digest
    from helmsman.schemas.trace import Trace, TraceInfo, write_trace
    from helmsman.simulator.export import timeline_json

    if args.trace:
        trace = Trace(TraceInfo(source="simulated", plan_sha256=digest(plan)), spans)
        with whole_file(args.trace) as stream:
            write_trace(trace, stream)
    if args.timeline:
        lanes = [device.name for device in plan.hardware.devices] + [link.name for link in plan.hardware.links]
        used = {span.resource for span in spans}
        title = f"{plan.model.name} {plan.label}"
        ordered = [lane for lane in dict.fromkeys(lanes) if lane in used]
        write_text(args.timeline, timeline_json(spans, ordered, title))


def _written(args: argparse.Namespace) -> str:
    lines = [f"trace        {args.trace}"] if args.trace else []
    if args.timeline:
        lines.append(f"timeline     {args.timeline} (open it at https://ui.perfetto.dev)")
    lines += [f"plot         {args.plot}"] if args.plot else []
    return "".join(f"\n{line}" for line in lines)
