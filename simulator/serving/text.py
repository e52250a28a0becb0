"""Serving runs for people: a report and a sweep as text."""

from collections.abc import Iterator, Sequence

from helmsman.schemas.serving import (
    Activity,
    Attended,
    Cache,
    Goodput,
    ServingReport,
    ServingSweep,
    Slo,
    Spread,
)
from helmsman.schemas.units import format_seconds
from helmsman.simulator.serving.slo import LIMITS

_HEAD = f"{'':<21}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}"


def report_text(serving_report: ServingReport) -> str:
    """Return the text that `helm-sim --requests` prints."""
    return "\n".join(
        [
            *_requests(serving_report),
            "",
            *_latencies(serving_report),
            "",
            *_work(serving_report),
            *_verdict(serving_report.goodput),
        ]
    )


def _requests(serving_report: ServingReport) -> Iterator[str]:
    counts, rate = serving_report.counts, serving_report.throughput
    others = (("cancelled", counts.cancelled), ("rejected", counts.rejected), ("failed", counts.failed))
    ended = "".join(f", {count} {what}" for what, count in others if count)
    arrivals = "all at once" if serving_report.rate is None else f"{serving_report.rate:.4g} requests/s"
    yield f"{'policy':<14}{serving_report.run.policy}"
    if serving_report.run.users is not None:
        yield f"{'users':<14}{serving_report.run.users}, who think for {serving_report.run.think or 'no time'}"
    whole = format_seconds(serving_report.duration)
    yield f"{'requests':<14}{counts.finished} finished{ended}; arrivals {arrivals}; {whole} in all"
    tokens = f"{rate.output_tokens:.5g} output tokens/s, {rate.total_tokens:.5g} tokens/s"
    yield f"{'throughput':<14}{rate.requests:.4g} requests/s, {tokens}"


def _latencies(serving_report: ServingReport) -> Iterator[str]:
    latency = serving_report.latency
    yield _HEAD
    yield _spread("TTFT", latency.ttft)
    yield _spread("TPOT", latency.tpot)
    yield _spread("ITL", latency.itl)
    yield _spread("E2E", latency.e2e)
    yield _spread("E2E / output tokens", latency.per_token)
    if serving_report.on_cpu.requests:
        yield from _side("accelerator", serving_report.on_gpu)
        yield from _side("host", serving_report.on_cpu)


def _side(name: str, attended: Attended) -> Iterator[str]:
    yield _spread(f"TPOT, {name}", attended.tpot)
    yield _spread(f"ITL, {name}", attended.itl)


def _spread(name: str, spread: Spread | None) -> str:
    values = () if spread is None else (spread.mean, spread.p50, spread.p90, spread.p99, spread.max)
    cells = [f"{format_seconds(value):>10}" for value in values] or [f"{'-':>10}"] * 5
    return f"{name:<21}" + "".join(cells)


def _work(serving_report: ServingReport) -> Iterator[str]:
    on_cpu = serving_report.on_cpu
    if on_cpu.requests:
        share = on_cpu.tokens / max(1, on_cpu.tokens + serving_report.on_gpu.tokens)
        yield f"{'on the host':<14}{on_cpu.requests} requests, {on_cpu.tokens} tokens ({share:.1%} of those decoded)"
    if serving_report.activity is not None:
        yield from _activity(serving_report.activity)
    yield f"{'preemptions':<14}{serving_report.preemptions}"
    if serving_report.reused_tokens:
        yield f"{'reused':<14}{serving_report.reused_tokens} prompt tokens"


def _activity(activity: Activity) -> Iterator[str]:
    busy = activity.busy
    shares = f"accelerator {busy.gpu:.1%}, host {busy.cpu:.1%}, link {busy.link:.1%}"
    yield f"{'busy':<14}{shares} in {activity.iterations} passes"
    yield f"{'KV cache':<14}{_cache('accelerator', activity.gpu_cache)}"
    if activity.cpu_cache.max > 0.0:
        yield f"{'':<14}{_cache('host', activity.cpu_cache)}"
    if activity.swapped_out or activity.swapped_in:
        yield f"{'swapped':<14}{activity.swapped_out} KV tokens to the host, {activity.swapped_in} back"


def _cache(name: str, cache: Cache) -> str:
    return f"{name} {cache.tokens} tokens, in use {cache.mean:.1%} on average, {cache.max:.1%} at most"


def _verdict(goodput: Goodput | None) -> Iterator[str]:
    if goodput is not None:
        verdict = "kept" if goodput.met else "missed"
        yield f"{'SLO':<14}{slo_text(goodput.slo)}: {verdict}; {goodput.share:.2%} of the requests keep all limits"
        yield f"{'goodput':<14}{goodput.requests:.4g} requests/s"


def slo_text(slo: Slo) -> str:
    """Return an SLO in one line."""
    limits = [(name, getattr(slo, field)) for name, field in LIMITS.items()]
    said = ", ".join(f"{name} {format_seconds(limit)}" for name, limit in limits if limit is not None)
    return f"{slo.name + ': ' if slo.name else ''}{said} for {slo.share:.4g} of the requests"


def sweep_text(serving_sweep: ServingSweep) -> str:
    """Return a line for each run of a sweep."""
    waits = f"{'TTFT p99':>10}{'TPOT p99':>10}{'E2E/tokens':>11}"
    head = f"{serving_sweep.over:>14}  {'policy':<16}{'requests/s':>11}{'tokens/s':>10}{waits}"
    return "\n".join(
        [
            head + _columns(serving_sweep),
            *(_point(serving_sweep, number) for number in range(len(serving_sweep.points))),
        ]
    )


def _columns(serving_sweep: ServingSweep) -> str:
    goodput = f"{'SLO kept':>10}" if serving_sweep.points[0].report.goodput is not None else ""
    return goodput + (f"  relative to {serving_sweep.relative_to}" if serving_sweep.relative_to else "")


def _point(serving_sweep: ServingSweep, number: int) -> str:
    point = serving_sweep.points[number]
    rate, latency, goodput = point.report.throughput, point.report.latency, point.report.goodput
    waits = [_p99(latency.ttft), _p99(latency.tpot), None if latency.per_token is None else latency.per_token.mean]
    cells = _seconds(waits)
    kept = "" if goodput is None else f"{goodput.share:>10.1%}"
    relative = "" if point.relative is None else f"{point.relative:>10.3f}"
    numbers = f"{rate.requests:>11.4g}{rate.output_tokens:>10.5g}"
    return f"{point.value:>14g}  {point.policy:<16}{numbers}{cells[0]:>10}{cells[1]:>10}{cells[2]:>11}{kept}{relative}"


def _p99(spread: Spread | None) -> float | None:
    return None if spread is None else spread.p99


def _seconds(values: Sequence[float | None]) -> list[str]:
    return ["-" if value is None else format_seconds(value) for value in values]
