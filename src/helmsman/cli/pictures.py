"""--plot: the pictures that commands draw; matplotlib is loaded only here, and only when asked for."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.output import write_bytes
from helmsman.cli.parser import Parser
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from helmsman.planner.decision import Decision
    from helmsman.planner.strategies.op_split.strategy import OpSplit
    from helmsman.schemas.comparison import Comparison
    from helmsman.schemas.plan import Plan
    from helmsman.simulator.per_layer import PassLayers
    from helmsman.simulator.replay import Price
    from helmsman.timing.handovers import Handovers
    from helmsman.timing.interference import Slowed


def add_plot_argument(parser: Parser, what: str) -> None:
    """--plot FILE."""
    parser.add_argument("--plot", type=Path, metavar="FILE.svg|png", help=f"draw {what}")


def check_plot_argument(args: argparse.Namespace) -> None:
    """Refuse a file that is no picture before anything is computed."""
    if args.plot is not None:
        from helmsman.analysis.plots.picture import image_format

        image_format(args.plot, "--plot")


def layers_drawn(text: str | None, count: int) -> range:
    """The layers that --layer names, `24` or `24-25`, of 0 <= l < count; by default one in the middle."""
    if text is None:
        return range(count // 2, count // 2 + 1)
    first, _, last = text.partition("-")
    if not all(part.isdecimal() and len(part) < 7 for part in (first, last or first)):
        raise UsageError("not a layer", field="--layer", value=text, remedy="write --layer 24 or --layer 24-25")
    found = range(int(first), int(last or first) + 1)
    if not found or found[-1] >= count:
        remedy = f"the layers are 0 to {count - 1}, the first before the last"
        raise UsageError("no such layers", field="--layer", value=text, remedy=remedy)
    return found


def draw_gantt(
    path: Path, plan: "Plan", price: "Price", layers: range, between: "Handovers", slowed: "Slowed | None"
) -> None:
    """The Gantt chart of `layers` in the decode step in the middle; in prefill if there are no decode steps."""
    from helmsman.analysis.plots.blocks import chart, layer_period
    from helmsman.analysis.plots.gantt import Heading, gantt
    from helmsman.lowering.lower import lower
    from helmsman.lowering.paging import passes_of
    from helmsman.simulator.replay import replay, spans

    workload, passes = plan.workload, passes_of(plan)
    step, together = (workload.decode_steps + 1) // 2, passes.batches
    iteration = passes.step(step) if step else passes.prompt[-1]
    replayed = replay(lower(plan, iteration), price, plan.hardware, slowed, between)
    shown = spans(replayed)
    drawn, period = chart(shown, plan.hardware, layers), layer_period(shown, plan.hardware)
    which = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]}–{layers[-1]}"
    phase = f"decode step {step} of {workload.decode_steps}" if step else "prefill"
    batch = f"{together} batches of {workload.batch}" if together > 1 else f"batch {workload.batch}"
    subtitle = (
        f"{plan.model.name} on {plan.hardware.name}: {phase}, context {iteration.context}, {batch}, simulated; "
        f"{which} of 0–{plan.model.layers - 1} in {drawn.seconds * 1e3:.4g} ms"
    )
    subtitle += "" if period is None else f", one layer every {period * 1e3:.4g} ms"
    write_picture(path, gantt(drawn, Heading(plan.label, subtitle)))


def draw_search(path: Path, strategy: "OpSplit", decision: "Decision") -> None:
    """The latency of every operation split that was searched, and the one that was chosen."""
    from helmsman.analysis.plots.split_curve import Names, split_curve
    from helmsman.analysis.plots.split_panels import draw_split_curve

    frame, plan = strategy.frame, decision.plan
    shape = plan.workload
    batch = f"{shape.batches} batches of {shape.batch}" if shape.batches > 1 else f"batch {shape.batch}"
    tokens = f"{shape.prompt_tokens} + {shape.output_tokens} tokens"
    names = Names(
        label=plan.label,
        subtitle=f"{plan.model.name} on {plan.hardware.name}: {tokens}, {batch}",
        symbol="L" if strategy.options.printed else "L′",
        accelerator="accelerator" if frame.accelerator.kind == "loopback" else "GPU",
    )
    curve = split_curve(strategy.fitting, strategy.units, strategy.finalists[0][0], names)
    write_picture(path, draw_split_curve(curve))


def draw_comparison(path: Path, found: "Comparison") -> None:
    """Every strategy's speed; of larger batches, latency against tokens/s."""
    if found.points:
        from helmsman.analysis.plots.latency_rate import draw_points as draw
    else:
        from helmsman.analysis.plots.strategy_bars import draw_strategies as draw
    write_picture(path, draw(found))


def draw_strip(path: Path, plan: "Plan") -> None:
    """Where every block of a plan lives and runs."""
    from helmsman.analysis.plots.layer_strip import draw_layers

    write_picture(path, draw_layers(plan))


def draw_overlap(path: Path, plan: "Plan", passes: "Sequence[PassLayers]") -> None:
    """Every layer's computation against the loading of the next."""
    from helmsman.analysis.plots.layer_overlap import draw_overlaps

    write_picture(path, draw_overlaps(plan, passes))


def write_picture(path: Path, figure: "Figure") -> None:
    """Write a figure in the format that the file's name asks for."""
    from helmsman.analysis.plots.picture import image, image_format

    content = image(figure, image_format(path, "--plot"))
    write_bytes(path, content)
