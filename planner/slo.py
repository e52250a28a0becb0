"""Limits of seconds that plans are to keep, from text."""

from collections.abc import Mapping

from helmsman.scheduler.iteration import Phase
from helmsman.schemas.errors import UsageError

_PHASES: Mapping[str, Phase] = {"ttft": "prefill", "tpot": "decode"}
_UNITS = {"ms": 1e-3, "s": 1.0}


def limits_of(text: str | None) -> dict[Phase, float]:
    """Return the seconds of `ttft=2s,tpot=100ms` by phase; none of None. Raises UsageError."""
    limits: dict[Phase, float] = {}
    for item in () if text is None else text.split(","):
        name, _, value = item.strip().partition("=")
        if name not in _PHASES or _PHASES[name] in limits:
            remedy = "write ttft=TIME, tpot=TIME or both, as in ttft=2s,tpot=100ms"
            raise UsageError("not a limit, or the same one twice", field="slo", value=item, remedy=remedy)
        limits[_PHASES[name]] = _seconds(item, value)
    return limits


def _seconds(item: str, value: str) -> float:
    unit = "ms" if value.endswith("ms") else "s"
    try:
        seconds = float(value.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise UsageError("not a time", field="slo", value=item, remedy="write seconds (2s) or milliseconds (100ms)")
    return seconds
