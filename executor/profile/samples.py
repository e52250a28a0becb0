"""What is measured, before it is fitted."""

from dataclasses import dataclass, field

from helmsman.schemas.formats import Format


@dataclass
class ProcessorSamples:
    """What was measured: bytes/s of reads, and shares or FLOP/s by (format, size)."""

    read: list[float] = field(default_factory=list)
    footprint: dict[int, list[float]] = field(default_factory=dict)
    linear: dict[tuple[Format, int], list[float]] = field(default_factory=dict)
    gemm: dict[tuple[Format, int], list[float]] = field(default_factory=dict)
    attention: dict[tuple[Format, int], list[float]] = field(default_factory=dict)
    wide: dict[Format, list[float]] = field(default_factory=dict)
    """FLOP/s of attention whose groups of query heads make it heavy in arithmetic."""


@dataclass
class InplaceSamples:
    """Seconds of operations in a stage, by (kind, tokens)."""

    small: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """By tokens: (activation bytes, seconds) of norms and cache writes."""
    lookup: dict[int, list[float]] = field(default_factory=dict)
    attention: dict[int, list[float]] = field(default_factory=dict)


@dataclass
class LinkSamples:
    """One lane: bytes/s and seconds of its probes, and seconds of copies by size."""

    rate: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    seconds: dict[int, list[float]] = field(default_factory=dict)


@dataclass
class BusySamples:
    """A processor while the link moves data: bytes/s of reads and products, and the link's bytes/s meanwhile."""

    read: list[float] = field(default_factory=list)
    linear: dict[Format, list[float]] = field(default_factory=dict)
    link: list[float] = field(default_factory=list)
