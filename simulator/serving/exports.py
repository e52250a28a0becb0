"""Served requests in the shapes of other tools: vLLM's bench serve (JSON) and AIPerf (JSON Lines, a record a request).

Gaps of single requests are there where they were measured; a simulation has them for all requests together."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from helmsman.schemas.served_table import FINISHED, STATUSES, ServedTable
from helmsman.schemas.serving import ServingReport, Spread
from helmsman.simulator.serving.metrics import e2e, tpot, ttft

_MS = 1e3
_NS = 1e9


def vllm_bench(served: ServedTable, report: ServingReport) -> dict[str, Any]:
    """Return the document that `vllm bench serve --save-result --save-detailed` writes, times in its units (single
    requests: seconds)."""
    rate, latency, counts = report.throughput, report.latency, report.counts
    document: dict[str, Any] = {
        "backend": "helm",
        "label": f"{served.info.source} {served.info.policy}",
        "num_prompts": counts.asked,
        "request_rate": "inf" if report.rate is None else report.rate,
        "duration": report.duration,
        "completed": counts.finished,
        "failed": counts.asked - counts.finished,
        "total_input_tokens": int(np.sum(served.prompt_tokens[served.status == FINISHED])),
        "total_output_tokens": int(np.sum(served.produced)),
        "request_throughput": rate.requests,
        "request_goodput": None if report.goodput is None else report.goodput.requests,
        "output_throughput": rate.output_tokens,
        "total_token_throughput": rate.total_tokens,
    }
    for name, spread in (("ttft", latency.ttft), ("tpot", latency.tpot), ("itl", latency.itl), ("e2el", latency.e2e)):
        document |= _spread(name, spread)
    return document | _details(served)


def _spread(name: str, spread: Spread | None) -> dict[str, float]:
    """Return a metric's mean, median and percentiles in milliseconds; 0 where there is none, as vLLM writes it."""
    values = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99"}
    return {
        f"{said}_{name}_ms": 0.0 if spread is None else getattr(spread, ours) * _MS for said, ours in values.items()
    }


def _details(served: ServedTable) -> dict[str, Any]:
    done = served.status == FINISHED
    details: dict[str, Any] = {
        "input_lens": served.prompt_tokens.tolist(),
        "output_lens": np.where(done, served.produced, 0).tolist(),
        "ttfts": np.where(done, ttft(served), 0.0).tolist(),
        "start_times": served.arrival_s.tolist(),
        "errors": ["" if status == FINISHED else STATUSES[status] for status in served.status.tolist()],
    }
    return details | ({"itls": list(_gaps(served))} if served.info.source == "measured" else {})


def _gaps(served: ServedTable) -> Iterator[list[float]]:
    """Yield each request's own gaps, seconds."""
    gaps = served.gaps
    for first, last in zip(gaps.start[:-1].tolist(), gaps.start[1:].tolist(), strict=True):
        runs = (gaps.first_s[run] + gaps.step_s[run] * np.arange(gaps.steps[run]) for run in range(first, last))
        yield [gap for run in runs for gap in run.tolist()]


def aiperf_records(served: ServedTable) -> Iterator[dict[str, Any]]:
    """Records as in AIPerf's profile_export.jsonl; times in milliseconds, the clock's in nanoseconds."""
    waits = zip(ttft(served).tolist(), e2e(served).tolist(), tpot(served).tolist(), strict=True)
    own = list(_gaps(served)) if served.info.source == "measured" else [None] * len(served)
    for row, ((first, whole, gap), gaps) in enumerate(zip(waits, own, strict=True)):
        yield {
            "metadata": _metadata(served, row),
            "metrics": _metrics(served, row, first, whole, gap, gaps) if served.status[row] == FINISHED else {},
            "error": _error(served, row),
        }


def _metadata(served: ServedTable, row: int) -> dict[str, Any]:
    end = float(served.finish_s[row])
    return {
        "session_num": int(served.request[row]),
        "request_start_ns": round(float(served.arrival_s[row]) * _NS),
        "request_end_ns": None if np.isnan(end) else round(end * _NS),
        "benchmark_phase": "profiling",
        "was_cancelled": STATUSES[int(served.status[row])] == "cancelled",
    }


def _metrics(
    served: ServedTable, row: int, first: float, whole: float, gap: float, gaps: list[float] | None
) -> dict[str, Any]:
    metrics = {
        "input_sequence_length": _value(int(served.prompt_tokens[row]), "tokens"),
        "output_sequence_length": _value(int(served.produced[row]), "tokens"),
        "time_to_first_token": _value(first * _MS, "ms"),
        "request_latency": _value(whole * _MS, "ms"),
    }
    if not np.isnan(gap):
        metrics["inter_token_latency"] = _value(gap * _MS, "ms")
    if gaps is not None:
        metrics["inter_chunk_latency"] = _value([seconds * _MS for seconds in gaps], "ms")
    return metrics


def _value(value: Any, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


def _error(served: ServedTable, row: int) -> dict[str, Any] | None:
    status = STATUSES[int(served.status[row])]
    return None if status == "finished" else {"type": status, "message": f"the request was {status}"}
