"""How fast cores read memory where fewer of them work than its channels need."""

from helmsman.schemas.figures import Figure, Source

CORE_READS = "core-reads"
"""The key of the source that such reads name."""
CORE_READS_SOURCE = Source(kind="assumed", where="assumed: what one core reads, by class")
_READS = {"x86-server": 20e9, "arm-server": 14e9, "x86-laptop": 25e9, "apple-cpu": 40e9}
_READS_ELSEWHERE = 30e9
"""Bytes/s that one core reads at most, by class (assumed; of servers between the 10 to 12 GB/s that were seen of
Cascade Lake and the 36 to 39 of Zen 5: 30 threads of an EPYC 9355 were no slower than 32 in six rows)."""
_SPREAD = (0.4, 1.6)


def read_by(cores: int, device_class: str | None) -> Figure:
    """Return bytes/s that so many cores of a class read at most, however fast the memory is."""
    most = _READS.get(device_class or "", _READS_ELSEWHERE) * cores
    return Figure(value=most, p10=_SPREAD[0] * most, p90=_SPREAD[1] * most, source=CORE_READS)
