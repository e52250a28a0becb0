"""The figures that commands draw, from plans, searches and comparisons."""

from typing import TYPE_CHECKING

from helmsman.analysis.plots.blocks import chart, layer_period
from helmsman.analysis.plots.gantt import Heading, gantt
from helmsman.analysis.plots.split_curve import Names, split_curve
from helmsman.analysis.plots.split_panels import draw_split_curve
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.plan import Plan
from helmsman.simulator.replay import Price, replay, spans
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import Slowed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from helmsman.schemas.serving import ServingReport, ServingSweep
    from helmsman.simulator.serving.run import Outcome


def gantt_figure(plan: Plan, price: Price, layers: range, between: Handovers, slowed: Slowed | None) -> "Figure":
    """Return the Gantt chart of `layers` in the decode step in the middle; in prefill if there are no decode steps."""
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
    return gantt(drawn, Heading(plan.label, subtitle))


def search_figure(strategy: OpSplit, plan: Plan) -> "Figure":
    """Draw the latency of every operation split that was searched, and the one that was chosen."""
    frame, shape = strategy.frame, plan.workload
    batch = f"{shape.batches} batches of {shape.batch}" if shape.batches > 1 else f"batch {shape.batch}"
    tokens = f"{shape.prompt_tokens} + {shape.output_tokens} tokens"
    names = Names(
        label=plan.label,
        subtitle=f"{plan.model.name} on {plan.hardware.name}: {tokens}, {batch}",
        symbol="L" if strategy.options.printed else "L′",
        accelerator="accelerator" if frame.accelerator.kind == "loopback" else "GPU",
    )
    return draw_split_curve(split_curve(strategy.fitting, strategy.units, strategy.finalists[0][0], names))


def comparison_figure(comparison: Comparison) -> "Figure":
    """Draw every strategy's speed; of larger batches, latency against tokens/s."""
    if comparison.points:
        from helmsman.analysis.plots.latency_rate import draw_points as draw
    else:
        from helmsman.analysis.plots.strategy_bars import draw_strategies as draw
    return draw(comparison)


def served_figure(outcome: "Outcome", serving_report: "ServingReport") -> "Figure":
    """Latencies of one serving run, and requests and caches over time."""
    from helmsman.analysis.plots.serving_curves import describe
    from helmsman.analysis.plots.serving_run import draw_run

    title = f"{serving_report.run.policy}: {serving_report.throughput.output_tokens:.5g} output tokens/s"
    run = (serving_report.run.policy, outcome.served)
    goodput = serving_report.goodput
    if goodput is None:
        return draw_run(run, outcome.occupancy, title, describe(serving_report))
    shares = [f"{100.0 * share:.5g} %" for share in (goodput.share, goodput.slo.share)]
    kept = f"{shares[0]} of the requests keep all limits, {shares[1]} have to"
    subtitle = f"{describe(serving_report)}; {'keeps' if goodput.met else 'MISSES'} the SLO: {kept}"
    return draw_run(run, outcome.occupancy, title, subtitle, goodput.slo)


def sweep_figure(serving_sweep: "ServingSweep") -> "Figure":
    """Draw the points of a sweep."""
    from helmsman.analysis.plots.serving_curves import describe, draw_sweep

    return draw_sweep(serving_sweep, describe(serving_sweep.points[0].report))
