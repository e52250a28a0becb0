"""The limits of `--slo`: those of what requests wait for, by metric or by a benchmark's name."""

from helmsman.schemas.errors import UsageError
from helmsman.schemas.serving import Slo
from helmsman.schemas.units import parse_seconds

LIMITS = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e", "per-token": "per_token"}
_MS = 1e-3


def _mlperf(name: str, ttft: float, tpot: float) -> Slo:
    return Slo(name=f"mlperf-{name}", ttft=ttft * _MS, tpot=tpot * _MS)


PRESETS = {
    slo.name: slo
    for slo in (
        _mlperf("llama2-70b", 2000, 200),
        _mlperf("llama2-70b-interactive", 450, 40),
        _mlperf("llama3.1-8b", 2000, 100),
        _mlperf("llama3.1-8b-interactive", 500, 30),
        _mlperf("llama3.1-405b", 6000, 175),
        _mlperf("llama3.1-405b-interactive", 4500, 80),
        _mlperf("mixtral-8x7b", 2000, 200),
        _mlperf("deepseek-r1", 2000, 80),
        _mlperf("deepseek-r1-interactive", 1500, 15),
    )
}
"""MLPerf Inference's server scenarios, at the 99th percentile (mlcommons/inference, loadgen/mlperf.conf)."""


def parse_slo(text: str) -> Slo:
    """`ttft=2s,tpot=100ms,share=0.95`, or a preset with or without changes. Raises UsageError."""
    first, *others = text.split(",")
    preset = PRESETS.get(first)
    changes: dict[str, float] = {}
    for item in others if preset else (first, *others):
        name, equals, value = item.partition("=")
        field = {**LIMITS, "share": "share"}.get(name)
        if not equals or field is None or field in changes:
            known = ", ".join([*LIMITS, "share", *(name for name in PRESETS if name)])
            remedy = f"write ttft=2s,tpot=100ms or use once each of {known}"
            raise UsageError("not a limit, or the same one twice", field="slo", value=item, remedy=remedy)
        changes[field] = _share(value, item) if field == "share" else _limit(value, item)
    slo = (preset or Slo()).model_copy(update=changes)
    if all(getattr(slo, field) is None for field in LIMITS.values()):
        raise UsageError("no limit", field="slo", value=text, remedy="write ttft=2s,tpot=100ms")
    return slo


def _limit(value: str, item: str) -> float:
    seconds = parse_seconds(value, "slo")
    if not seconds > 0.0:
        raise UsageError("not a time", field="slo", value=item, remedy="write seconds (2s) or milliseconds (100ms)")
    return seconds


def _share(value: str, item: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise UsageError("not a share of requests", field="slo", value=item, remedy="write share=0.99")
    return share
