"""A simulated stream for readers: a document, and a table for people."""

from collections.abc import Iterator, Sequence

from helmsman.lowering.placement import batches_together
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.replay_report import (
    LayerOverlap,
    ReplayedDrafts,
    ReplayedLane,
    ReplayedLayer,
    ReplayedLayers,
    ReplayedPhase,
    ReplayedRates,
    ReplayReport,
    StepQuantiles,
    Waits,
    WorkedOn,
    WorkedTogether,
)
from helmsman.schemas.units import format_bytes, format_seconds
from helmsman.simulator.breakdown import ROWS
from helmsman.simulator.overlap import FIELDS
from helmsman.simulator.per_layer import Overlap, PassLayers
from helmsman.simulator.stream import LaneUse, Stream, StreamPhase


def document(
    plan: Plan,
    stream: Stream,
    waits: Waits,
    passes: Sequence[PassLayers] = (),
    drafts: ReplayedDrafts | None = None,
) -> ReplayReport:
    """Return the report of a stream: seconds, bytes, tokens/s, the `waits` per layer and batch, the layers of
    `passes`, and its steps with `drafts`."""
    return ReplayReport(
        plan=plan.label,
        plan_sha256=digest(plan),
        ttft_s=stream.ttft,
        tpot_s=stream.tpot,
        itl_s=None if stream.itl is None else StepQuantiles(**stream.itl),
        e2e_s=stream.e2e,
        batches_s=stream.e2e * plan.workload.batches / batches_together(plan),
        tokens_per_second=ReplayedRates(decode=stream.decode_rate, overall=stream.rate),
        prefill=_phase(stream.prefill),
        decode=_phase(stream.decode),
        synchronisation=waits,
        decode_steps=stream.steps,
        decode_steps_replayed=len(stream.simulated),
        per_layer={one_pass.phase: _layers(one_pass) for one_pass in passes} or None,
        drafts=drafts,
    )


def table(plan: Plan, stream: Stream, waits: Waits, drafts: ReplayedDrafts | None = None) -> str:
    """Return the text that `helm-sim` prints."""
    drafted = [] if drafts is None else [_drafted(drafts)]
    return "\n".join([*_times(plan, stream), *drafted, "", *_lanes(stream), *_synchronised(waits)])


def _drafted(drafts: ReplayedDrafts) -> str:
    rate, step = f"{drafts.tokens_per_second:.4g} tokens/s", format_seconds(drafts.seconds / drafts.steps)
    return f"drafts       {rate}: {drafts.accepted} of {drafts.drafted} accepted, {drafts.steps} steps of {step}"


def _layers(pass_layers: PassLayers) -> ReplayedLayers:
    layers = (
        ReplayedLayer(kind=layer.kind, layer=layer.layer, compute_s=layer.compute, load_s=layer.load)
        for layer in pass_layers.layers
    )
    return ReplayedLayers(
        context=pass_layers.context, layers=tuple(layers), overlaps=tuple(map(_overlap, pass_layers.overlaps))
    )


def _overlap(overlap: Overlap) -> LayerOverlap:
    return LayerOverlap(
        kind=overlap.kind,
        following=overlap.following,
        compute_s=overlap.compute,
        load_s=overlap.load,
        ratio=overlap.ratio,
    )


def layers_table(passes: Sequence[PassLayers]) -> str:
    """Table IV's form: what a layer computes while the next one is loaded."""
    lines = [line for one_pass in passes for line in _overlaps(one_pass)]
    head = f"{'layer':<12}{'next':<12}{'phase':<10}{'compute':>11}{'next load':>11}{'ratio':>8}"
    return "\n".join(["\n", head, *lines]) if passes else ""


def _overlaps(pass_layers: PassLayers) -> Iterator[str]:
    for overlap in pass_layers.overlaps:
        ratio = "-" if overlap.ratio is None else f"{overlap.ratio:.2f}"
        times = f"{format_seconds(overlap.compute):>11}{format_seconds(overlap.load):>11}{ratio:>8}"
        yield f"{overlap.kind:<12}{overlap.following:<12}{pass_layers.phase:<10}{times}"


def _synchronised(synchronisation: Waits) -> Iterator[str]:
    """How often devices wait for each other, against a division of every layer among them (PARK-77)."""
    if synchronisation.tensor_parallel:
        against = f"tensor parallelism: {synchronisation.tensor_parallel}"
        waits = f"{synchronisation.devices:.3g} between devices ({against}), {synchronisation.lanes:.3g} in all"
        yield f"waits per layer and batch: {waits}"


def _phase(phase: StreamPhase) -> ReplayedPhase:
    return ReplayedPhase(
        seconds=phase.seconds,
        overlap_s=phase.overlap,
        shares=WorkedTogether(**{f"{name}_s": getattr(phase.shares, name) for name in FIELDS}),
        breakdown=WorkedOn(**{f"{name}_s": getattr(phase.rows, name) for name in ROWS}),
        resources=tuple(map(_lane, phase.lanes)),
    )


def _lane(lane: LaneUse) -> ReplayedLane:
    return ReplayedLane(name=lane.resource, busy_s=lane.busy, idle_s=lane.idle, bytes=lane.bytes)


def _times(plan: Plan, stream: Stream) -> Iterator[str]:
    work = plan.workload
    shape = f"{work.prompt_tokens} + {work.output_tokens} tokens, batch {work.shape}"
    yield f"{plan.model.name} on {plan.hardware.name}: {plan.label}, {shape}"
    yield ""
    yield f"TTFT         {format_seconds(stream.ttft)}"
    if stream.tpot is not None and stream.itl is not None:
        spread = ", ".join(f"{name} {format_seconds(stream.itl[name])}" for name in ("p50", "p90", "p99"))
        yield f"TPOT         {format_seconds(stream.tpot)} (ITL {spread})"
        yield f"tokens/s     {stream.decode_rate:.4g} in decode, {stream.rate:.4g} overall"
    else:
        yield f"tokens/s     {stream.rate:.4g} overall; one output token has no TPOT"
    yield f"E2E          {format_seconds(stream.e2e)}"


def _lanes(stream: Stream) -> Iterator[str]:
    yield f"{'resource':<18}{'phase':<10}{'busy':>11}{'share':>8}{'idle':>11}{'bytes':>12}"
    for name, phase in (("prefill", stream.prefill), ("decode", stream.decode)):
        for lane in phase.lanes:
            share = lane.busy / phase.seconds if phase.seconds else 0.0
            times = f"{format_seconds(lane.busy):>11}{share:>8.1%}{format_seconds(lane.idle):>11}"
            yield f"{lane.resource:<18}{name:<10}{times}{format_bytes(lane.bytes):>12}"
    overlap, total = stream.prefill.overlap + stream.decode.overlap, stream.e2e
    yield from _shares(stream.decode)
    yield f"two or more at work: {format_seconds(overlap)} ({overlap / total if total else 0.0:.1%})"


def _shares(phase: StreamPhase) -> Iterator[str]:
    """Yield the shares of what worked together in decode, where transfers to an accelerator did (PARK-64)."""
    shares = phase.shares
    if not (shares.h2d or shares.h2d_cpu or shares.h2d_gpu or shares.all) or not phase.seconds:
        return
    parts = [f"{_WORDS[name]} {getattr(shares, name) / phase.seconds:.1%}" for name in FIELDS if getattr(shares, name)]
    yield f"decode by what worked: {', '.join(parts)}"
    rows = [f"{_ROWS[name]} {format_seconds(getattr(phase.rows, name))}" for name in ROWS if getattr(phase.rows, name)]
    yield f"decode by what was done: {', '.join(rows)}"


_WORDS = {
    "h2d": "transfers only",
    "h2d_cpu": "transfers + CPU",
    "h2d_gpu": "transfers + accelerator",
    "cpu_gpu": "CPU + accelerator",
    "all": "all three",
    "gpu": "accelerator only",
    "cpu": "CPU only",
    "other": "write-back only",
    "idle": "nothing",
}
_ROWS = {
    "compute": "accelerator computing",
    "decompression": "decompression",
    "cache": "cache to it",
    "weights": "weights to it",
    "cpu": "CPU",
    "other": "other transfers",
    "idle": "accelerator idle",
}
