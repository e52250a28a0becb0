"""From samples to a hardware record: devices with efficiencies, memories, links, raw readings, host facts."""

from collections.abc import Iterator
from dataclasses import dataclass

from helmsman.executor._kernels import isa
from helmsman.executor.profile.cuda import CudaSamples
from helmsman.executor.profile.inplace import attention_flops, lookup_bytes
from helmsman.executor.profile.samples import BusySamples, InplaceSamples, LinkSamples, ProcessorSamples
from helmsman.executor.profile.settings import Loopback
from helmsman.hwdb.fit import curve, exact, figure, quantile
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.formats import FORMATS, Format
from helmsman.schemas.hardware import (
    Compute,
    Device,
    Efficiency,
    Figure,
    Hardware,
    Host,
    Link,
    Memory,
    Reading,
    Source,
)

MEASURED = "measured"
CUDA_MEMORY = "cuda-vram"
USABLE = 0.9
"""Share of the free RAM that a plan may use."""


@dataclass(frozen=True)
class ProcessorProfile:
    """All samples of one device."""

    name: str
    kind: str
    cores: int
    excludes: tuple[str, ...]
    samples: ProcessorSamples
    inplace: InplaceSamples


@dataclass(frozen=True)
class Profile:
    """Everything measured on this machine; the first processor is the host of splits."""

    host: Host
    free_memory: int
    date: str
    tool: str
    processors: tuple[ProcessorProfile, ...]
    loopback: Loopback | None = None
    links: dict[str, LinkSamples] | None = None
    busy: BusySamples | None = None
    cuda: CudaSamples | None = None


def record(profile: Profile) -> Hardware:
    """The hardware document of the profile."""
    source = Source(kind="measured", where=profile.host.cpu, date=profile.date, tool=profile.tool)
    return Hardware(
        name="this",
        memories=tuple(_memories(profile)),
        devices=(*(_device(processor, profile) for processor in profile.processors), *_cuda_device(profile)),
        links=(*_links(profile), *_cuda_links(profile)),
        sources={MEASURED: source, "configured": Source(kind="user", where="the profiler's arguments")},
        host=profile.host,
        readings=tuple(_readings(profile)),
    )


def _memories(profile: Profile) -> Iterator[Memory]:
    widest = max(profile.processors, key=lambda processor: processor.cores)
    bandwidth = figure(widest.samples.read, MEASURED)
    taken = profile.loopback.vram if profile.loopback else 0
    available = int(USABLE * max(0, profile.free_memory - taken))
    yield Memory(
        name="dram",
        kind="dram",
        capacity=profile.host.ram,
        available=available,
        bandwidth=bandwidth,
        source=MEASURED,
    )
    if profile.loopback:
        size = profile.loopback.vram
        yield Memory(
            name="vram",
            kind="loopback",
            capacity=size,
            available=size,
            bandwidth=figure(_named(profile, "loopback").samples.read, MEASURED),
            source="configured",
            shares="dram",
        )

    if profile.cuda:
        yield Memory(
            name=CUDA_MEMORY,
            kind="vram",
            product=profile.cuda.product,
            capacity=profile.cuda.capacity,
            available=int(USABLE * profile.cuda.free),
            bandwidth=figure(profile.cuda.samples.read, MEASURED),
            source=MEASURED,
        )


def _cuda_device(profile: Profile) -> Iterator[Device]:
    if profile.cuda is None:
        return
    samples = profile.cuda.samples
    peaks = {fmt: _peak(samples, fmt) for fmt in FORMATS}
    yield Device(
        name="cuda",
        kind="cuda",
        product=profile.cuda.product,
        memory=CUDA_MEMORY,
        read=figure(samples.read, MEASURED),
        compute=tuple(Compute(phase=phase, format=fmt, flops=peak) for phase in PHASES for fmt, peak in peaks.items()),
        efficiency=tuple(
            part for fmt in FORMATS for part in _product_shares(samples, fmt, peaks[fmt].value, overhead=0.0)
        ),
        launch=figure(profile.cuda.launch, MEASURED),
    )


def _cuda_links(profile: Profile) -> Iterator[Link]:
    """The loopback's lanes keep the plain names when both are there."""
    prefix = "cuda-" if profile.loopback else ""
    for name, samples in (profile.cuda.links if profile.cuda else {}).items():
        source, target = ("dram", CUDA_MEMORY) if name == "h2d" else (CUDA_MEMORY, "dram")
        yield Link(
            name=f"{prefix}{name}",
            source_memory=source,
            target_memory=target,
            kind="pcie",
            bandwidth=figure(samples.rate, MEASURED),
            latency=figure(samples.latency, MEASURED),
        )


def _named(profile: Profile, name: str) -> ProcessorProfile:
    return next(processor for processor in profile.processors if processor.name == name)


def _device(processor: ProcessorProfile, profile: Profile) -> Device:
    overhead, elementwise = _small_operations(processor.inplace)
    peak = max((_peak(processor.samples, fmt) for fmt in FORMATS), key=lambda best: best.value)
    return Device.model_validate(
        {
            "name": processor.name,
            "kind": processor.kind,
            "product": profile.host.cpu,
            "memory": "vram" if processor.kind == "loopback" else "dram",
            "cores": processor.cores,
            "excludes": processor.excludes,
            "isa": (isa(),),
            "read": figure(processor.samples.read, MEASURED),
            "compute": tuple(Compute(phase=phase, flops=peak) for phase in PHASES),
            "efficiency": tuple(_efficiencies(processor, peak.value, overhead)),
            "overhead": exact(overhead, MEASURED),
            "elementwise": exact(elementwise, MEASURED),
            "cache_bytes": profile.host.cache_bytes,
        }
    )


def _peak(samples: ProcessorSamples, fmt: Format) -> Figure:
    """The best median FLOP/s of any product in `fmt`; other products are shares of it."""
    products = [figure(flops, MEASURED) for (of, _), flops in samples.gemm.items() if of == fmt]
    return max(products, key=lambda best: best.value)


def _small_operations(samples: InplaceSamples) -> tuple[float, float]:
    """(seconds per operation, activation bytes/s) from norms and cache writes.

    The line through one token and many. Lower quartiles: these operations take a microsecond, and a preempted
    thread multiplies that by a thousand."""
    few, many = (samples.small[tokens] for tokens in (min(samples.small), max(samples.small)))
    (small, quick), (large, slow) = (_typical(found) for found in (few, many))
    per_byte = max((slow - quick) / (large - small), 1e-15)
    return max(quick - small * per_byte, quick / 10), 1.0 / per_byte


def _typical(found: list[tuple[float, float]]) -> tuple[float, float]:
    """(bytes, seconds) of an undisturbed operation."""
    return quantile([size for size, _ in found], 0.5), quantile([seconds for _, seconds in found], 0.25)


def _efficiencies(processor: ProcessorProfile, peak: float, overhead: float) -> Iterator[Efficiency]:
    for fmt in FORMATS:
        yield from _product_shares(processor.samples, fmt, peak, overhead)
    yield _attention_compute(processor, peak, overhead)
    yield _lookup(processor.inplace, quantile(processor.samples.read, 0.5), overhead)


def _product_shares(samples: ProcessorSamples, fmt: Format, peak: float, overhead: float) -> Iterator[Efficiency]:
    """Shares of the read bandwidth by bytes, and of the peak by tokens."""
    read = quantile(samples.read, 0.5)
    for op, found in (("linear", samples.linear), ("attention", samples.attention)):
        shares = {
            float(size): [_net(share, size / read, overhead) for share in values]
            for (of, size), values in found.items()
            if of == fmt
        }
        yield curve("memory", op, fmt, shares, MEASURED)
    gemm = {float(n): [f / peak for f in flops] for (of, n), flops in samples.gemm.items() if of == fmt}
    yield curve("compute", "linear", fmt, gemm, MEASURED)


def _net(share: float, alone: float, overhead: float) -> float:
    """The share without the overhead that prices add to every operation; `alone`: seconds of a plain read."""
    return alone / max(alone / share - overhead, 0.5 * alone / share)


def _attention_compute(processor: ProcessorProfile, peak: float, overhead: float) -> Efficiency:
    """One token: wide groups of heads; prompts: the stage's own attention."""
    wide = [flops / peak for values in processor.samples.wide.values() for flops in values]
    shares = {1.0: wide}
    for tokens, times in processor.inplace.attention.items():
        flops = attention_flops(tokens)
        shares[float(tokens)] = [flops / max(t - overhead, t / 2) / peak for t in times]
    return curve("compute", "attention", "*", shares, MEASURED)


def _lookup(samples: InplaceSamples, read: float, overhead: float) -> Efficiency:
    shares = {
        float(lookup_bytes(tokens)): [lookup_bytes(tokens) / max(t - overhead, t / 2) / read for t in times]
        for tokens, times in samples.lookup.items()
    }
    return curve("memory", "lookup", "*", shares, MEASURED)


def _links(profile: Profile) -> Iterator[Link]:
    ends = {"h2d": ("dram", "vram"), "d2h": ("vram", "dram")}
    for name, samples in (profile.links or {}).items():
        source, target = ends[name]
        yield Link(
            name=name,
            source_memory=source,
            target_memory=target,
            kind="loopback",
            bandwidth=figure(samples.rate, MEASURED),
            latency=figure(samples.latency, MEASURED),
        )


def _readings(profile: Profile) -> Iterator[Reading]:
    for processor in profile.processors:
        yield from _processor_readings(processor)
    for name, samples in (profile.links or {}).items():
        for size, seconds in samples.seconds.items():
            rates = [size / t for t in seconds]
            yield _reading("copy", name, "bytes/s", rates, {"bytes": size})
    if profile.busy is not None:
        yield from _busy_readings(profile.processors[0], profile.busy)


def _processor_readings(processor: ProcessorProfile) -> Iterator[Reading]:
    name, samples = processor.name, processor.samples
    threads: dict[str, int | float | str] = {"threads": processor.cores}
    for size, rates in samples.footprint.items():
        yield _reading("read", name, "bytes/s", rates, {**threads, "bytes": size})
    for what, found, unit in (
        ("linear", samples.linear, "share of read"),
        ("attention", samples.attention, "share of read"),
        ("gemm", samples.gemm, "FLOP/s"),
    ):
        at = "tokens" if what == "gemm" else "bytes"
        for (fmt, point), values in found.items():
            yield _reading(what, name, unit, values, {**threads, "format": fmt, at: point})


def _busy_readings(processor: ProcessorProfile, busy: BusySamples) -> Iterator[Reading]:
    condition: dict[str, int | float | str] = {"link": "busy", "threads": processor.cores}
    yield _reading("read", processor.name, "bytes/s", busy.read, condition)
    for fmt, rates in busy.linear.items():
        yield _reading("linear", processor.name, "bytes/s", rates, {**condition, "format": fmt})
    yield _reading("copy", "h2d", "bytes/s", busy.link, {"cpu": "busy"})


def _reading(
    what: str, device: str, unit: str, values: list[float], conditions: dict[str, int | float | str]
) -> Reading:
    return Reading(what=what, device=device, conditions=conditions, unit=unit, figure=figure(values, MEASURED))
