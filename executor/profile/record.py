"""From samples to a hardware record: devices with efficiencies, memories, links, raw readings, host facts."""

from collections.abc import Iterator, Sequence
from typing import Any

from helmsman.executor._kernels import isa
from helmsman.executor.profile.delays import link_slows
from helmsman.executor.profile.fits import (
    between,
    copy_overhead,
    interrupts_of,
    joint_compute,
    joint_products,
    joint_rate,
    of_device,
)
from helmsman.executor.profile.readings import MEASURED, cuda_lane, readings
from helmsman.executor.profile.samples import DiskSamples, ProcessorProfile, ProcessorSamples, Profile, StageSamples
from helmsman.executor.profile.synthetic_stage import attention_flops, lookup_bytes
from helmsman.hwdb.fit import curve, exact, figure, quantile, settled
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.formats import Precision, StoredFormat
from helmsman.schemas.hardware import Compute, Device, DiskReads, Efficiency, Hardware, Link, Memory
from helmsman.schemas.rounding import AttentionPrecision
from helmsman.schemas.storage import BLOCK

CUDA_MEMORY = "cuda-vram"
USABLE = 0.9
"""Share of the free RAM that a plan may use."""


def record(profile: Profile) -> Hardware:
    """The hardware document of the profile."""
    source = Source(kind="measured", where=profile.host.cpu, date=profile.date, tool=profile.tool)
    passes = profile.between_passes
    return Hardware(
        name="this",
        memories=tuple(_memories(profile)),
        devices=(*(_device(processor, profile) for processor in profile.processors), *_cuda_device(profile)),
        links=(*_links(profile), *_cuda_links(profile)),
        sources={MEASURED: source, "configured": Source(kind="user", where="the profiler's arguments")},
        host=profile.host,
        between_passes=between(passes.seconds) if passes is not None and passes.seconds else None,
        disks=tuple(map(_disk, profile.disks)),
        readings=tuple(readings(profile)),
    )


def _disk(disk: DiskSamples) -> DiskReads:
    rates = tuple(figure(rates, MEASURED) for rates in disk.rates.values())
    latency = figure(disk.latency, MEASURED)
    return DiskReads(folder=disk.folder, bytes=BLOCK, readers=tuple(disk.rates), rates=rates, latency=latency)


def _memories(profile: Profile) -> Iterator[Memory]:
    bandwidth = figure(profile.widest.samples.read, MEASURED)
    taken = profile.loopback.vram if profile.loopback else 0
    available = int(USABLE * max(0, profile.free_memory - taken))
    yield Memory(
        name="dram",
        kind="dram",
        capacity=profile.host.ram,
        available=available,
        bandwidth=bandwidth,
        joint=joint_rate(profile.joint) if profile.joint is not None else _with_link(profile),
        joint_products=joint_products(profile.joint) if profile.joint is not None else (),
        joint_compute=joint_compute(profile.joint) if profile.joint is not None else None,
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


def _with_link(profile: Profile) -> Figure | None:
    """Bytes/s that reads and copies to a GPU take from the host's memory at once; None where that was not measured."""
    pair = profile.cuda.contended.get("h2d") if profile.cuda is not None else None
    if pair is None:
        return None
    return figure([read + moved for read, moved in zip(pair.read_beside, pair.link_beside, strict=True)], MEASURED)


def _cuda_device(profile: Profile) -> Iterator[Device]:
    if profile.cuda is None:
        return
    samples = profile.cuda.samples
    peaks = {fmt: _peak(samples, fmt) for fmt in samples.formats}
    yield Device(
        name="cuda",
        kind="cuda",
        product=profile.cuda.product,
        memory=CUDA_MEMORY,
        read=figure(samples.read, MEASURED),
        compute=tuple(Compute(phase=phase, format=fmt, flops=peak) for phase in PHASES for fmt, peak in peaks.items()),
        efficiency=tuple(
            part for fmt, peak in peaks.items() for part in _product_shares(samples, fmt, peak.value, overhead=0.0)
        ),
        **_gpu_times(profile),
    )


def _gpu_times(profile: Profile) -> dict[str, Any]:
    """Return what operations of a GPU take beside bytes and arithmetic; nothing where no plan ran there."""
    steps = profile.between_passes.gpu if profile.between_passes is not None else None
    if steps is None:
        return {}
    overheads = {kind: figure(seconds, MEASURED) for kind, seconds in steps.overheads.items()}
    started = {} if not steps.start else {"join": figure(steps.start, MEASURED)}
    return {"overheads": overheads, "prompt_launch": figure(steps.prompt, MEASURED), **started}


def _cuda_links(profile: Profile) -> Iterator[Link]:
    cuda = profile.cuda
    for name, samples in (cuda.links if cuda else {}).items():
        source, target = ("dram", CUDA_MEMORY) if name == "h2d" else (CUDA_MEMORY, "dram")
        yield Link(
            name=cuda_lane(name, profile),
            source_memory=source,
            target_memory=target,
            kind="pcie",
            bandwidth=figure(samples.rate, MEASURED),
            latency=figure(samples.latency, MEASURED),
            pageable=_pageable(cuda.pageable[name], samples.rate) if cuda else None,
            slows=_slowed_reads(profile, name),
            **_crossing(cuda_lane(name, profile), profile),
        )


def _slowed_reads(profile: Profile, name: str) -> dict[str, Figure] | None:
    """How much longer the host's reads take while a GPU's link copies, as a part of them."""
    pair = profile.cuda.contended.get(name) if profile.cuda is not None else None
    if pair is None:
        return None
    slower = [max(0.0, alone / beside - 1.0) for alone, beside in zip(pair.read, pair.read_beside, strict=True)]
    return {profile.processors[0].name: figure(slower, MEASURED)}


def _pageable(rates: Sequence[float], locked: Sequence[float]) -> Figure:
    """The share of the rate of page-locked memory that other memory reaches."""
    whole = quantile(locked, 0.5)
    return figure([min(1.0, rate / whole) for rate in rates], MEASURED)


def _crossing(lane: str, profile: Profile) -> dict[str, Any]:
    """Return what copies on a GPU's lane take beside latency and bytes, and what waits for them; nothing where no plan
    ran."""
    steps = profile.between_passes.gpu if profile.between_passes is not None else None
    costs = {} if steps is None else {"overhead": steps.copy.get(lane), "handover": steps.handover.get(lane)}
    return {name: figure(seconds, MEASURED) for name, seconds in costs.items() if seconds}


def _named(profile: Profile, name: str) -> ProcessorProfile:
    return next(processor for processor in profile.processors if processor.name == name)


def _device(processor: ProcessorProfile, profile: Profile) -> Device:
    overhead, elementwise = _small_operations(processor.stage)
    samples, handed = processor.samples, profile.handovers
    peak = max((_peak(samples, fmt) for fmt in samples.formats), key=lambda best: best.value)
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
            "efficiency": tuple(_efficiencies(processor, peak.value, overhead.value, elementwise.value)),
            "overhead": overhead,
            "join": None if handed is None else of_device(handed.join, processor.name),
            "look_up": None if handed is None else of_device(handed.look_up, processor.name),
            "request": figure(processor.stage.requests, MEASURED),
            "elementwise": elementwise,
            "cache_bytes": profile.host.cache_bytes,
        }
    )


def _peak(samples: ProcessorSamples, fmt: StoredFormat) -> Figure:
    """The best median FLOP/s of any product in `fmt`; other products are shares of it."""
    products = [figure(flops, MEASURED) for (of, _, _), flops in samples.gemm.items() if of == fmt]
    return max(products, key=lambda best: best.value)


def _small_operations(samples: StageSamples) -> tuple[Figure, Figure]:
    """Seconds per operation and activation bytes/s, from norms and cache writes.

    The line through one token and many. Lower quartiles: these operations take a microsecond, and a preempted
    thread multiplies that by a thousand. Every sample, the other constant given, makes the spread."""
    few, many = (samples.small[tokens] for tokens in (min(samples.small), max(samples.small)))
    (small, quick), (large, slow) = (_typical(pairs) for pairs in (few, many))
    per_byte = max((slow - quick) / (large - small), 1e-15)
    overhead = max(quick - small * per_byte, quick / 10)
    overheads = [max(seconds - size * per_byte, 0.0) for size, seconds in few]
    rates = [size / max(seconds - overhead, seconds / 2) for size, seconds in many]
    return _chosen(overhead, overheads), _chosen(1.0 / per_byte, rates)


def _chosen(value: float, samples: Sequence[float]) -> Figure:
    """`value`, with the spread of the median of the samples it was chosen from."""
    spread = settled(samples, MEASURED)
    return spread.model_copy(update={"value": value, "p10": min(spread.p10, value), "p90": max(spread.p90, value)})


def _typical(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """(bytes, seconds) of an undisturbed operation."""
    return quantile([size for size, _ in pairs], 0.5), quantile([seconds for _, seconds in pairs], 0.25)


def _efficiencies(
    processor: ProcessorProfile, peak: float, overhead: float, elementwise: float
) -> Iterator[Efficiency]:
    for fmt in processor.samples.formats:
        yield from _product_shares(processor.samples, fmt, peak, overhead)
        yield from _input_shares(processor.samples, fmt, elementwise)
    for precision in dict.fromkeys(precision for precision, _ in processor.samples.prompt_attention):
        yield _attention_compute(processor, precision, peak, overhead)
    yield _lookup(processor.stage, quantile(processor.samples.read, 0.5), overhead)


def _product_shares(samples: ProcessorSamples, fmt: StoredFormat, peak: float, overhead: float) -> Iterator[Efficiency]:
    """Shares of the read bandwidth by bytes, and of the peak by tokens."""
    read = quantile(samples.read, 0.5)
    kinds = (("linear", samples.linear), ("attention", samples.attention), ("experts", samples.experts))
    for op, by_size in kinds:
        shares = {
            float(size): [_net(share, size / read, overhead) for share in values]
            for (of, size), values in by_size.items()
            if of == fmt
        }
        if shares:
            yield curve("memory", op, fmt, shares, MEASURED)
    for rounding in samples.roundings(fmt):
        rates = {float(n): flops for (of, by, n), flops in samples.gemm.items() if (of, by) == (fmt, rounding)}
        gemm = {n: [f / peak for f in flops] for n, flops in rates.items()}
        yield _rounded(curve("compute", "linear", fmt, gemm, MEASURED), samples, rounding)
    for rounding in dict.fromkeys(by for of, by, _ in samples.expert_products if of == fmt):
        measured = samples.expert_products.items()
        rates = {float(n): flops for (of, by, n), flops in measured if (of, by) == (fmt, rounding)}
        experts = {n: [f / peak for f in flops] for n, flops in rates.items()}
        yield _rounded(curve("compute", "experts", fmt, experts, MEASURED), samples, rounding)


def _input_shares(samples: ProcessorSamples, fmt: StoredFormat, elementwise: float) -> Iterator[Efficiency]:
    """Shares of the rate of activations, by tokens, at which inputs of products are brought into their form."""
    for rounding in samples.roundings(fmt):
        rates = {float(n): values for (of, by, n), values in samples.inputs.items() if (of, by) == (fmt, rounding)}
        shares = {tokens: [min(1.0, rate / elementwise) for rate in values] for tokens, values in rates.items()}
        yield _rounded(curve("inputs", "linear", fmt, shares, MEASURED), samples, rounding)


def _rounded(efficiency: Efficiency, samples: ProcessorSamples, rounding: Precision) -> Efficiency:
    """Return the efficiency curve with the precision of its activations, if its format was measured in several."""
    several = efficiency.format != "*" and len(samples.roundings(efficiency.format)) > 1
    return efficiency.model_copy(update={"rounding": rounding}) if several else efficiency


def _net(share: float, alone: float, overhead: float) -> float:
    """The share without the overhead that prices add to every operation; `alone`: seconds of a plain read."""
    return alone / max(alone / share - overhead, 0.5 * alone / share)


def _attention_compute(
    processor: ProcessorProfile, precision: AttentionPrecision, peak: float, overhead: float
) -> Efficiency:
    """One token: wide groups of heads; prompts: attention in a synthetic stage, with factors of `precision`."""
    wide = [flops / peak for values in processor.samples.wide.values() for flops in values]
    shares = {1.0: wide}
    for (of, tokens), times in processor.samples.prompt_attention.items():
        if of != precision:
            continue
        flops = attention_flops(tokens)
        shares[float(tokens)] = [flops / max(t - overhead, t / 2) / peak for t in times]
    return curve("compute", "attention", "*", shares, MEASURED).model_copy(update={"rounding": precision})


def _lookup(samples: StageSamples, read: float, overhead: float) -> Efficiency:
    shares = {
        float(lookup_bytes(tokens)): [lookup_bytes(tokens) / max(t - overhead, t / 2) / read for t in times]
        for tokens, times in samples.lookup.items()
    }
    return curve("memory", "lookup", "*", shares, MEASURED)


def _links(profile: Profile) -> Iterator[Link]:
    """Of a loopback accelerator: its engines keep to the latency that was asked for, and what more a copy takes is
    what passes until they wake and are done."""
    ends, slows, spent = {"h2d": ("dram", "vram"), "d2h": ("vram", "dram")}, link_slows(profile), profile.handovers
    for name, samples in profile.links.items():
        source, target = ends[name]
        configured = None if profile.loopback is None else exact(profile.loopback.latency, "configured")
        yield Link(
            name=name,
            source_memory=source,
            target_memory=target,
            kind="loopback",
            bandwidth=figure(samples.rate, MEASURED),
            latency=configured or figure(samples.latency, MEASURED),
            overhead=None if spent is None else copy_overhead(spent, name),
            handover=None if spent is None else figure(spent.handover[name], MEASURED),
            slows=slows.get(name),
            interrupts=None if spent is None else interrupts_of(spent, name),
        )
