"""Serving runs for people: a report, a sweep and a capacity as text."""

from collections.abc import Iterator, Sequence

from helmsman.schemas.serving import (
    Activity,
    Attended,
    Cache,
    Goodput,
    ServingCapacity,
    ServingReport,
    ServingSweep,
    Slo,
    Spread,
)
from helmsman.schemas.units import format_seconds
from helmsman.simulator.serving.slo import LIMITS

_HEAD = f"{'':<21}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}"


def report_text(found: ServingReport) -> str:
    """What `helm-sim --requests` prints."""
    return "\n".join([*_requests(found), "", *_latencies(found), "", *_work(found), *_verdict(found.goodput)])


def _requests(found: ServingReport) -> Iterator[str]:
    counts, rate = found.counts, found.throughput
    others = (("cancelled", counts.cancelled), ("rejected", counts.rejected), ("failed", counts.failed))
    ended = "".join(f", {count} {what}" for what, count in others if count)
    arrivals = "all at once" if found.rate is None else f"{found.rate:.4g} requests/s"
    yield f"{'policy':<14}{found.run.policy}"
    whole = format_seconds(found.duration)
    yield f"{'requests':<14}{counts.finished} finished{ended}; arrivals {arrivals}; {whole} in all"
    tokens = f"{rate.output_tokens:.5g} output tokens/s, {rate.total_tokens:.5g} tokens/s"
    yield f"{'throughput':<14}{rate.requests:.4g} requests/s, {tokens}"


def _latencies(found: ServingReport) -> Iterator[str]:
    latency = found.latency
    yield _HEAD
    yield _spread("TTFT", latency.ttft)
    yield _spread("TPOT", latency.tpot)
    yield _spread("ITL", latency.itl)
    yield _spread("E2E", latency.e2e)
    yield _spread("E2E / output tokens", latency.per_token)
    if found.on_cpu.requests:
        yield from _side("accelerator", found.on_gpu)
        yield from _side("host", found.on_cpu)


def _side(name: str, found: Attended) -> Iterator[str]:
    yield _spread(f"TPOT, {name}", found.tpot)
    yield _spread(f"ITL, {name}", found.itl)


def _spread(name: str, found: Spread | None) -> str:
    values = () if found is None else (found.mean, found.p50, found.p90, found.p99, found.max)
    cells = [f"{format_seconds(value):>10}" for value in values] or [f"{'-':>10}"] * 5
    return f"{name:<21}" + "".join(cells)


def _work(found: ServingReport) -> Iterator[str]:
    on_cpu = found.on_cpu
    if on_cpu.requests:
        share = on_cpu.tokens / max(1, on_cpu.tokens + found.on_gpu.tokens)
        yield f"{'on the host':<14}{on_cpu.requests} requests, {on_cpu.tokens} tokens ({share:.1%} of those decoded)"
    if found.activity is not None:
        yield from _activity(found.activity)
    yield f"{'preemptions':<14}{found.preemptions}"
    if found.reused_tokens:
        yield f"{'reused':<14}{found.reused_tokens} prompt tokens"


def _activity(found: Activity) -> Iterator[str]:
    busy = found.busy
    shares = f"accelerator {busy.gpu:.1%}, host {busy.cpu:.1%}, link {busy.link:.1%}"
    yield f"{'busy':<14}{shares} in {found.iterations} passes"
    yield f"{'KV cache':<14}{_cache('accelerator', found.gpu_cache)}"
    if found.cpu_cache.max > 0.0:
        yield f"{'':<14}{_cache('host', found.cpu_cache)}"
    if found.swapped_out or found.swapped_in:
        yield f"{'swapped':<14}{found.swapped_out} KV tokens to the host, {found.swapped_in} back"


def _cache(name: str, found: Cache) -> str:
    return f"{name} {found.tokens} tokens, in use {found.mean:.1%} on average, {found.max:.1%} at most"


def _verdict(found: Goodput | None) -> Iterator[str]:
    if found is not None:
        verdict = "kept" if found.met else "missed"
        yield f"{'SLO':<14}{slo_text(found.slo)}: {verdict}; {found.share:.2%} of the requests keep all limits"
        yield f"{'goodput':<14}{found.requests:.4g} requests/s"


def slo_text(slo: Slo) -> str:
    """An SLO in one line."""
    limits = [(name, getattr(slo, field)) for name, field in LIMITS.items()]
    said = ", ".join(f"{name} {format_seconds(limit)}" for name, limit in limits if limit is not None)
    return f"{slo.name + ': ' if slo.name else ''}{said} for {slo.share:.4g} of the requests"


def sweep_text(found: ServingSweep) -> str:
    """A line for each run of a sweep."""
    waits = f"{'TTFT p99':>10}{'TPOT p99':>10}{'E2E/tokens':>11}"
    head = f"{found.over:>14}  {'policy':<16}{'requests/s':>11}{'tokens/s':>10}{waits}"
    return "\n".join([head + _columns(found), *(_point(found, number) for number in range(len(found.points)))])


def _columns(found: ServingSweep) -> str:
    goodput = f"{'SLO kept':>10}" if found.points[0].report.goodput is not None else ""
    return goodput + (f"  relative to {found.relative_to}" if found.relative_to else "")


def _point(found: ServingSweep, number: int) -> str:
    point = found.points[number]
    rate, latency, goodput = point.report.throughput, point.report.latency, point.report.goodput
    waits = [_p99(latency.ttft), _p99(latency.tpot), None if latency.per_token is None else latency.per_token.mean]
    cells = _seconds(waits)
    kept = "" if goodput is None else f"{goodput.share:>10.1%}"
    relative = "" if point.relative is None else f"{point.relative:>10.3f}"
    numbers = f"{rate.requests:>11.4g}{rate.output_tokens:>10.5g}"
    return f"{point.value:>14g}  {point.policy:<16}{numbers}{cells[0]:>10}{cells[1]:>10}{cells[2]:>11}{kept}{relative}"


def _p99(found: Spread | None) -> float | None:
    return None if found is None else found.p99


def _seconds(values: Sequence[float | None]) -> list[str]:
    return ["-" if value is None else format_seconds(value) for value in values]


def capacity_text(found: ServingCapacity) -> str:
    """The maximum rate, its interval and what it was found from."""
    interval = "" if found.low is None or found.high is None else f", 95 % interval {found.low:.4g} to {found.high:.4g}"
    seeds = f"{len(found.seeds)} {'seed' if len(found.seeds) == 1 else 'seeds'}"
    return "\n".join(
        [
            f"{'policy':<14}{found.run.policy}",
            f"{'SLO':<14}{slo_text(found.slo)}",
            f"{'capacity':<14}{found.rate:.4g} requests/s{interval} ({seeds}, {found.runs} runs)",
        ]
    )
