"""The samples of a profile, before they are fitted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import harmonic_mean

from helmsman.executor.profile.settings import Loopback
from helmsman.hwdb.fit import spread
from helmsman.schemas.formats import KvFormat, Precision, StoredFormat
from helmsman.schemas.hardware import Host, OverheadKind
from helmsman.schemas.rounding import AttentionPrecision

AttentionSamples = dict[tuple[AttentionPrecision, int], list[float]]
"""Seconds of one block's attention over a prompt, by what its factors are rounded to and the tokens of the prompt."""


@dataclass(frozen=True)
class UnsettledPoints:
    """How many points stayed disturbed, and how many others unsteady: their samples lie apart, although nobody on this
    machine took time from them."""

    disturbed: int = 0
    unsteady: int = 0

    def plus(self, other: "UnsettledPoints") -> "UnsettledPoints":
        """Of both."""
        return UnsettledPoints(self.disturbed + other.disturbed, self.unsteady + other.unsteady)


@dataclass
class ProcessorSamples:
    """The samples of a processor: bytes/s of reads, and shares or FLOP/s by (format, size)."""

    read: list[float] = field(default_factory=list)
    """Of scattered pieces, beyond every cache: they walk through `read_bytes`."""
    read_bytes: int = 0
    footprint: dict[int, list[float]] = field(default_factory=dict)
    """Of one contiguous buffer, by its bytes."""
    linear: dict[tuple[StoredFormat, int], list[float]] = field(default_factory=dict)
    gemm: dict[tuple[StoredFormat, Precision, int], list[float]] = field(default_factory=dict)
    """FLOP/s of products of several tokens, less what their inputs take, by what activations are rounded to."""
    inputs: dict[tuple[StoredFormat, Precision, int], list[float]] = field(default_factory=dict)
    """bytes/s at which f32 inputs of these are brought into the products' form; empty where that was not measured."""
    attention: dict[tuple[KvFormat, int], list[float]] = field(default_factory=dict)
    experts: dict[tuple[StoredFormat, int], list[float]] = field(default_factory=dict)
    """As `linear`, of the experts that one token chooses, by the bytes of their matrices of one kind."""
    expert_products: dict[tuple[StoredFormat, Precision, int], list[float]] = field(default_factory=dict)
    """FLOP/s of experts by what activations are rounded to and the number of tokens of each."""
    wide: dict[KvFormat, list[float]] = field(default_factory=dict)
    """FLOP/s of attention whose groups of query heads make it heavy in arithmetic."""
    prompt_attention: AttentionSamples = field(default_factory=dict)
    prompt_attention_disturbed: float = 0.0
    """Share of the time that others took while `prompt_attention` was measured."""
    disturbed: dict[tuple[str, StoredFormat, int], float] = field(default_factory=dict)
    """Share of the time that others took (`executor.system.interference.disturbance`) while `linear`, `gemm ROUNDING`,
    `experts`, `expert products ROUNDING`, `attention` or `wide` was measured in a format, by bytes or tokens (0 for
    wide)."""
    reads_disturbed: list[float] = field(default_factory=list)
    """Share of the time that others took from every one of `read`."""

    def add_reads(self, rates: list[float], share: float) -> None:
        """Plain reads of one point, from which others took `share` of the time. All together are one sample: a pass
        takes longer than one of them, so that it sees the sum of their seconds as well."""
        self.read.append(harmonic_mean(rates))
        self.reads_disturbed.append(share)

    @property
    def formats(self) -> tuple[StoredFormat, ...]:
        """Those of the products that were measured."""
        return tuple(dict.fromkeys(fmt for fmt, _, _ in self.gemm))

    def roundings(self, fmt: StoredFormat) -> tuple[Precision, ...]:
        """Those of the products with weights in `fmt` that were measured."""
        return tuple(dict.fromkeys(rounding for of, rounding, _ in self.gemm if of == fmt))


@dataclass
class StageSamples:
    """Seconds of operations in a stage, by (kind, tokens)."""

    small: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """By tokens: (activation bytes, seconds) of norms and cache writes."""
    lookup: dict[int, list[float]] = field(default_factory=dict)
    requests: list[float] = field(default_factory=list)
    """Seconds that each of several short requests adds to a layer's attention beside its bytes."""
    disturbed: float = 0.0
    """Share of the time that others took while all this was measured."""


@dataclass
class LinkSamples:
    """One lane: bytes/s and seconds of its probes, and seconds of copies by size."""

    rate: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    seconds: dict[int, list[float]] = field(default_factory=dict)
    disturbed: float = 0.0
    """Share of the time that others took."""

    @property
    def spread(self) -> float:
        """How far the rates of its probes lie apart."""
        return spread(self.rate)


@dataclass
class BusySamples:
    """The host while the link to the accelerator moves data, and the link's bytes/s meanwhile."""

    host: ProcessorSamples = field(default_factory=ProcessorSamples)
    link: list[float] = field(default_factory=list)


@dataclass
class HandoverSamples:
    """Seconds beside those of operations and bytes, by device or link.

    `nominal`: latency and bytes of the copies. `task`: from the end of an operation to the start of the next that was
    submitted for itself; `join`: of one that also waits for other lanes, which are done; `look_up`: from the end of an
    operation until it is known which experts are in slots; `copy`, `beside`: of a small copy from the end of what it
    follows, the device that is at work there resting or working on; `handover`: from a copy's end to the start of what
    waits for it. `taken`: by link, device and bytes, by how much longer work takes past which a copy goes, and how long
    the copy takes. `disturbed`: the share of the time that others took."""

    nominal: float
    task: dict[str, list[float]] = field(default_factory=dict)
    join: dict[str, list[float]] = field(default_factory=dict)
    look_up: dict[str, list[float]] = field(default_factory=dict)
    copy: dict[str, list[float]] = field(default_factory=dict)
    beside: dict[str, list[float]] = field(default_factory=dict)
    handover: dict[str, list[float]] = field(default_factory=dict)
    taken: dict[tuple[str, str, int], list[tuple[float, float]]] = field(default_factory=dict)
    disturbed: float = 0.0


@dataclass
class GpuSteps:
    """Seconds beside those of bytes and arithmetic, of plans that were run on a GPU.

    `overheads`: by kind, of an operation beyond what its bytes and its arithmetic take; `prompt`: of an operation of a
    prompt, which is launched by itself, beyond the mean of these; `start`: what a range of operations takes longer
    where it waits for other lanes; by link `copy`: of a small copy, from the end of what it follows, beyond latency and
    bytes; `handover`: from a copy's end to the start of what waits for it, and what that takes longer."""

    overheads: dict[OverheadKind, list[float]] = field(default_factory=dict)
    prompt: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    copy: dict[str, list[float]] = field(default_factory=dict)
    handover: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class BetweenPassesSamples:
    """`seconds` from the end of a decode step to the start of the next, by the device that ends it and the pieces in
    which a pass is handed over; `gpu`: what the steps of a GPU took; `disturbed`: the share of the time that others
    took."""

    seconds: dict[tuple[str, int], list[float]]
    gpu: GpuSteps | None = None
    disturbed: float = 0.0


@dataclass
class JointSamples:
    """Two devices at once: bytes/s of each by ("idle" or "busy" link, format, bytes of a matrix), as many of every one
    of the `visits`; `read`: bytes/s of plain reads of both, by link; `disturbed`: the share that others took;
    `shares`: by format and bytes of a matrix, once a visit, bytes/s of both over those of plain reads of both right
    before and after, the link idle; `throughout`: bytes/s of plain reads of both after every second point of the
    profile, the link idle; `kept`: after the other points, what each keeps of its FLOP/s while both compute."""

    names: tuple[str, str] = ("", "")
    read: dict[str, list[float]] = field(default_factory=dict)
    rates: dict[tuple[str, StoredFormat, int], tuple[list[float], list[float]]] = field(default_factory=dict)
    shares: dict[tuple[StoredFormat, int], list[float]] = field(default_factory=dict)
    visits: int = 0
    disturbed: float = 0.0
    throughout: Sequence[float] = ()
    kept: Sequence[float] = ()


@dataclass
class ContendedSamples:
    """bytes/s of plain reads by the host's processors and of copies over a link, each alone and both at once; as many
    of each."""

    read: list[float] = field(default_factory=list)
    link: list[float] = field(default_factory=list)
    read_beside: list[float] = field(default_factory=list)
    link_beside: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class DiskSamples:
    """Reads of pages at random places of a disk, past the page cache: bytes/s by the number of readers at once, and
    seconds of reads by one."""

    folder: str
    rates: dict[int, list[float]]
    latency: list[float]
    disturbed: float = 0.0


@dataclass
class CudaSamples:
    """The samples of one GPU and its link; bytes of its memory, and of those free."""

    product: str
    capacity: int
    free: int
    samples: ProcessorSamples = field(default_factory=ProcessorSamples)
    links: dict[str, LinkSamples] = field(default_factory=dict)
    pageable: dict[str, list[float]] = field(default_factory=dict)
    """By direction: bytes/s of large copies of memory that is not page-locked."""
    contended: dict[str, ContendedSamples] = field(default_factory=dict)
    """By direction: large copies while the host reads its memory; empty where that was not measured."""
    disturbed: float = 0.0
    """Share of the host's time that others took."""


@dataclass(frozen=True)
class ProcessorProfile:
    """All samples of one device."""

    name: str
    kind: str
    cores: int
    excludes: tuple[str, ...]
    samples: ProcessorSamples
    stage: StageSamples


@dataclass(frozen=True)
class Profile:
    """Everything measured on this machine; the first processor is the host of splits.

    `reads`: by fewer threads than the widest processor has; `others`: share of the CPU time that other
    processes took while all this was measured, None where the system does not tell; `left`: what stayed disturbed."""

    host: Host
    free_memory: int
    date: str
    tool: str
    processors: tuple[ProcessorProfile, ...]
    reads: dict[int, ProcessorSamples] = field(default_factory=dict)
    loopback: Loopback | None = None
    links: dict[str, LinkSamples] = field(default_factory=dict)
    busy: BusySamples | None = None
    handovers: HandoverSamples | None = None
    joint: JointSamples | None = None
    between_passes: BetweenPassesSamples | None = None
    cuda: CudaSamples | None = None
    disks: tuple[DiskSamples, ...] = ()
    others: float | None = None
    left: UnsettledPoints = UnsettledPoints()

    @property
    def widest(self) -> ProcessorProfile:
        """The processor with the most cores."""
        return max(self.processors, key=lambda processor: processor.cores)
