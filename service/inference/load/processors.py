"""The share that others took of a server's processors while it was measured, from what its `/metrics` say before and
after."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from helmsman.executor.system.interference import CpuTimes, others_share

OTHERS = "others_cpu_share"
"""Note of a table of served requests: the share of the machine's processor time that others used."""
WAITED = "thread_wait_share"
"""Note of a table of served requests: the seconds that the server's threads waited for a processor, all together, over
all processor time."""


@dataclass(frozen=True, slots=True)
class ProcessorUse:
    """Seconds of the server's machine so far; `times.own` is the server's, and the client's where both are there."""

    times: CpuTimes
    waited: float


def parse_use(text: str, client: float) -> ProcessorUse | None:
    """From Prometheus' text format; `client`: processor seconds of this process, if it runs beside the server."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in _NAMES:
            seconds = _seconds(value)
            if seconds is None:
                return None
            values[name] = seconds
    if len(values) < len(_NAMES):
        return None
    own, busy, total, waited = (values[name] for name in _NAMES)
    return ProcessorUse(CpuTimes(busy, total, own + client), waited)


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0.0 <= seconds < MAX_SECONDS else None


MAX_SECONDS = 1e12
"""Of processor time that a server may tell: more is none."""

_NAMES = (
    "process_cpu_seconds_total",
    "helm:machine_busy_seconds_total",
    "helm:machine_cpu_seconds_total",
    "helm:thread_wait_seconds_total",
)


def on_this_machine(url: str) -> bool:
    """Whether `url` names a loopback address."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def use_notes(before: ProcessorUse | None, after: ProcessorUse | None) -> dict[str, float]:
    """Return what others took between two moments, for the notes of a table; nothing where the server does not tell."""
    if before is None or after is None:
        return {}
    others = others_share(before.times, after.times)
    if others is None:
        return {}
    return {OTHERS: others, WAITED: max(0.0, after.waited - before.waited) / (after.times.total - before.times.total)}
