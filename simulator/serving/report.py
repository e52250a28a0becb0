"""A serving run as a report: latencies, throughput, goodput, and what was done on the host."""

import numpy as np

from helmsman.schemas.served_table import CANCELLED, FAILED, FINISHED, REJECTED, ServedTable
from helmsman.schemas.serving import (
    Activity,
    Attended,
    Counts,
    Latency,
    ServingReport,
    Slo,
    Spread,
    Throughput,
)
from helmsman.simulator.serving.gap_quantiles import runs_of
from helmsman.simulator.serving.metrics import e2e, finished, gap_spread, goodput, per_token, spread, tpot, ttft


def report(served: ServedTable, slo: Slo | None = None, activity: Activity | None = None) -> ServingReport:
    """Everything that can be said of a run from its table; `activity` comes from who ran it."""
    duration, gaps = duration_of(served), served.gaps
    whole = gap_spread(runs_of(gaps))
    apart = bool(gaps.on_cpu.any())
    return ServingReport(
        run=served.info,
        rate=_arrival_rate(served),
        duration=duration,
        counts=_counts(served),
        latency=_latency(served, whole),
        throughput=_throughput(served, duration),
        on_cpu=_attended(served, True, gap_spread(runs_of(gaps, True)) if apart else None),
        on_gpu=_attended(served, False, gap_spread(runs_of(gaps, False)) if apart else whole),
        preemptions=int(np.sum(served.preemptions)),
        reused_tokens=int(np.sum(served.reused_tokens)),
        activity=activity,
        goodput=None if slo is None else goodput(served, slo, duration),
    )


def duration_of(served: ServedTable) -> float:
    """Return seconds from the first arrival until the last request had ended; 0 where none was served."""
    ends = served.finish_s[~np.isnan(served.finish_s)]
    return max(0.0, float(ends.max() - served.arrival_s[0])) if len(ends) else 0.0


def _arrival_rate(served: ServedTable) -> float | None:
    seconds = float(served.arrival_s[-1] - served.arrival_s[0]) if len(served) else 0.0
    return (len(served) - 1) / seconds if seconds > 0.0 else None


def _counts(served: ServedTable) -> Counts:
    number = np.bincount(served.status, minlength=4).tolist()
    return Counts(
        asked=len(served),
        finished=number[FINISHED],
        cancelled=number[CANCELLED],
        rejected=number[REJECTED],
        failed=number[FAILED],
    )


def _latency(served: ServedTable, itl: Spread | None) -> Latency:
    return Latency(
        ttft=spread(np.where(finished(served), ttft(served), np.nan)),
        tpot=spread(tpot(served)),
        itl=itl,
        e2e=spread(e2e(served)),
        per_token=spread(per_token(served)),
    )


def _throughput(served: ServedTable, duration: float) -> Throughput:
    done, per_second = finished(served), 1.0 / duration if duration > 0.0 else 0.0
    produced = int(np.sum(served.produced))
    prompts = int(np.sum(served.prompt_tokens[served.produced > 0]))
    return Throughput(
        requests=int(np.sum(done)) * per_second,
        output_tokens=produced * per_second,
        total_tokens=(produced + prompts) * per_second,
    )


def _attended(served: ServedTable, on_cpu: bool, itl: Spread | None) -> Attended:
    """Return requests with attention on the host for some of their tokens, or those with none there."""
    here = finished(served) & ((served.cpu_tokens > 0) == on_cpu)
    decoded = np.maximum(served.produced - 1, 0) - served.cpu_tokens
    return Attended(
        requests=int(np.sum(here)),
        tokens=int(np.sum(served.cpu_tokens if on_cpu else np.maximum(decoded, 0))),
        tpot=spread(np.where(here, tpot(served), np.nan)),
        itl=itl,
    )
