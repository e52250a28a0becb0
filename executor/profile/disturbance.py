"""Figures of a record that others disturbed: a wider spread, and a mark that says how much others took."""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from statistics import fmean

from helmsman.executor.profile.readings import MEASURED, Conditions, cuda_lane
from helmsman.executor.profile.samples import (
    ProcessorSamples,
    Profile,
    StageSamples,
    UnsettledPoints,
)
from helmsman.hwdb.fit import exact, figure
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.figures import DISTURBED, SHARES, SLOWINGS, Figure, disturbed_figure
from helmsman.schemas.hardware import LEFT, Device, Efficiency, Hardware, Interrupts, Link, Memory, Reading
from helmsman.schemas.rounding import DEFAULT_ROUNDING

DISTURBANCE = "disturbance"
"""Of a reading: the share of the time that others took from a point, beyond `DISTURBED`."""

_Shares = Callable[[Efficiency, float], float]
"""Disturbance of a curve at one of its `at`."""


def marked(hardware: Hardware, profile: Profile) -> Hardware:
    """The record with the disturbed figures of `profile` widened and marked, and a reading for each of its points."""
    readings = (*hardware.readings, *_readings(profile))
    memories = tuple(_memory(memory, profile) for memory in hardware.memories)
    devices = tuple(_device(device, profile) for device in hardware.devices)
    links = tuple(_link(link, profile) for link in hardware.links)
    parts = {
        "memories": memories,
        "devices": devices,
        "links": links,
        "between_passes": _between(hardware.between_passes, profile),
        "readings": readings,
    }
    return hardware.model_copy(update=parts)


def _wider(figure: Figure | None, share: float, limits: tuple[float, float] = (0.0, inf)) -> Figure | None:
    return None if figure is None else disturbed_beyond(figure, share, limits)


def disturbed_beyond(figure: Figure, share: float, limits: tuple[float, float] = (0.0, inf)) -> Figure:
    """`figure`, wider (within `limits`) and marked where others took more than `DISTURBED` of the time it was measured
    in."""
    return figure if share <= DISTURBED else disturbed_figure(figure, share, limits)


def _device(device: Device, profile: Profile) -> Device:
    for processor in profile.processors:
        if processor.name == device.name:
            changed = _processor(device, processor.samples, processor.stage)
            handed = {name: _wider(getattr(changed, name), _handed(profile)) for name in ("join", "look_up")}
            return changed.model_copy(update=handed)
    if profile.cuda is not None and device.kind == "cuda":
        return _cuda(device, profile)
    return device


def _processor(device: Device, samples: ProcessorSamples, stage: StageSamples) -> Device:
    def share(curve: Efficiency, at: float) -> float:
        if curve.op == "lookup":
            return stage.disturbed
        if curve.format != "*":
            several = "expert products" if curve.op == "experts" else "gemm"
            rounding = curve.rounding or DEFAULT_ROUNDING.of(curve.format)
            kind = curve.op if curve.bound == "memory" else f"{several} {rounding}"
            return samples.disturbed.get((kind, curve.format, int(at)), 0.0)
        wide = [value for (kind, _, _), value in samples.disturbed.items() if kind == "wide"]
        return _mean(wide) if at == 1.0 else samples.prompt_attention_disturbed

    products = _mean(value for (kind, _, _), value in samples.disturbed.items() if kind.startswith("gemm"))
    return device.model_copy(
        update={
            "read": _wider(device.read, _mean(samples.reads_disturbed)),
            "compute": tuple(
                peak.model_copy(update={"flops": _wider(peak.flops, products)}) for peak in device.compute
            ),
            "efficiency": _curves(device, share),
            "overhead": _wider(device.overhead, stage.disturbed),
            "request": _wider(device.request, stage.disturbed),
            "elementwise": _wider(device.elementwise, stage.disturbed),
        }
    )


def _curves(device: Device, share: _Shares) -> tuple[Efficiency, ...]:
    return tuple(
        curve.model_copy(
            update={
                "share": tuple(
                    _wider(figure, share(curve, at), SHARES) for at, figure in zip(curve.at, curve.share, strict=True)
                )
            }
        )
        for curve in device.efficiency
    )


def _cuda(device: Device, profile: Profile) -> Device:
    """Launches and joins are the host's work; reads, products and steps are the GPU's, which other processes of the
    host do not slow."""
    share = profile.between_passes.disturbed if profile.between_passes is not None else 0.0
    names = ("prompt_launch", "join")
    return device.model_copy(update={name: _wider(getattr(device, name), share) for name in names})


def _memory(memory: Memory, profile: Profile) -> Memory:
    """Its bandwidth is what the processor that reads from it reached."""
    readers = {"dram": profile.widest, "loopback": next((p for p in profile.processors if p.kind == "loopback"), None)}
    reader = readers.get(memory.kind)
    if reader is None:
        return memory
    bandwidth = _wider(memory.bandwidth, _mean(reader.samples.reads_disturbed))
    together = profile.joint.disturbed if profile.joint is not None else 0.0
    joint = {"joint": _wider(memory.joint, together), "joint_compute": _wider(memory.joint_compute, together, SHARES)}
    products = tuple(
        joint_product.model_copy(update={"share": disturbed_beyond(joint_product.share, together, SHARES)})
        for joint_product in memory.joint_products
    )
    return memory.model_copy(update={"bandwidth": bandwidth, "joint_products": products, **joint})


def _link(link: Link, profile: Profile) -> Link:
    shares = {name: samples.disturbed for name, samples in profile.links.items()}
    if profile.cuda is not None:
        shares |= {cuda_lane(name, profile): profile.cuda.disturbed for name in profile.cuda.links}
    share = shares.get(link.name, 0.0)
    slows = link.slows
    if link.slows is not None and profile.busy is not None and link.name in profile.links:
        beside = _mean(profile.busy.host.disturbed.values())
        slows = {name: disturbed_beyond(figure, beside, SLOWINGS) for name, figure in link.slows.items()}
    bandwidth, latency = _wider(link.bandwidth, share), _wider(link.latency, share)
    handed = _handed(profile)
    gpu = {} if profile.cuda is None else {cuda_lane(name, profile) for name in profile.cuda.links}
    if link.name in gpu and profile.between_passes is not None:
        handed = profile.between_passes.disturbed
    times = {"overhead": _wider(link.overhead, handed), "handover": _wider(link.handover, handed)}
    interrupts = link.interrupts and {
        name: Interrupts(
            small=disturbed_beyond(interrupt.small, handed, SLOWINGS),
            large=disturbed_beyond(interrupt.large, handed, SLOWINGS),
        )
        for name, interrupt in link.interrupts.items()
    }
    rates = {"bandwidth": bandwidth, "latency": latency, "pageable": _wider(link.pageable, share, SHARES)}
    return link.model_copy(update={**rates, **times, "slows": slows, "interrupts": interrupts})


def _between(between_passes: BetweenPasses | None, profile: Profile) -> BetweenPasses | None:
    if between_passes is None or profile.between_passes is None:
        return between_passes
    share = profile.between_passes.disturbed
    begin = {device: _wider(figure, share) for device, figure in between_passes.begin.items()}
    return between_passes.model_copy(update={"begin": begin, "submission": _wider(between_passes.submission, share)})


def _handed(profile: Profile) -> float:
    """Return the share that others took from the time in which hand-overs were measured."""
    return profile.handovers.disturbed if profile.handovers is not None else 0.0


def _mean(shares: Iterable[float]) -> float:
    known = list(shares)
    return fmean(known) if known else 0.0


def _readings(profile: Profile) -> Iterator[Reading]:
    """How much others took from every point that stayed disturbed."""
    for processor in profile.processors:
        yield from _points(processor.name, processor.samples, {})
        yield from _whole(processor.name, "stage", processor.stage.disturbed)
        yield from _whole(processor.name, "attention of prompts", processor.samples.prompt_attention_disturbed)
    if profile.busy is not None:
        yield from _points(profile.processors[0].name, profile.busy.host, {"link": "busy"})
    for name, link in profile.links.items():
        yield from _whole(name, "copy", link.disturbed)
    if profile.joint is not None:
        yield from _whole(profile.joint.names[0], "joint", profile.joint.disturbed)
    yield from _whole(profile.processors[0].name, "hand-over", _handed(profile))
    if profile.between_passes is not None:
        yield from _whole(profile.processors[0].name, "between passes", profile.between_passes.disturbed)
    if profile.cuda is not None:
        yield from _whole("cuda", "all", profile.cuda.disturbed)
    yield from left_readings(profile.left, profile.widest.name, {}, MEASURED)


def left_readings(left: UnsettledPoints, device: str, given: Conditions, source: str) -> Iterator[Reading]:
    """Readings that count the points of a profile which stayed disturbed, or unsteady; a count of 0 is written too, so
    that a record tells that it was looked for."""
    for of, count in (("disturbed", left.disturbed), ("unsteady", left.unsteady)):
        conditions: Conditions = {**given, "of": of}
        yield Reading(what=LEFT, device=device, conditions=conditions, unit="points", figure=figure([count], source))


def _points(device: str, samples: ProcessorSamples, given: Conditions) -> Iterator[Reading]:
    for (kind, fmt, at), share in samples.disturbed.items():
        if share > DISTURBED:
            size = "tokens" if kind.startswith(("gemm", "expert products")) else "bytes"
            conditions: Conditions = {**given, "of": kind, "format": fmt, size: at}
            yield _reading(device, conditions, share)


def _whole(device: str, of: str, share: float) -> Iterator[Reading]:
    if share > DISTURBED:
        yield _reading(device, {"of": of}, share)


def _reading(device: str, conditions: Conditions, share: float) -> Reading:
    return Reading(what=DISTURBANCE, device=device, conditions=conditions, unit="share", figure=exact(share, MEASURED))
