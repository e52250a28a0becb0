"""Raw readings: what was measured, under which conditions, kept beside the figures fitted from it."""

from collections.abc import Iterator

from helmsman.executor.devices.probe import PRODUCT_TOKENS
from helmsman.executor.profile.samples import (
    BusySamples,
    ContendedSamples,
    HandoverSamples,
    JointSamples,
    LinkSamples,
    ProcessorSamples,
    Profile,
)
from helmsman.hwdb.fit import figure
from helmsman.schemas.hardware import OTHERS, Reading
from helmsman.schemas.storage import BLOCK

MEASURED = "measured"
CONTENDED = "contended"
"""Of a reading: the host's reads, or a link's copies, while the `other` of both is idle or busy."""
RANDOM_READ = "random read"
_MOST_LETTERS = 200
"""Of a folder's path that a reading has, from its end."""

Conditions = dict[str, int | float | str]


def readings(profile: Profile) -> Iterator[Reading]:
    """Every reading of the profile."""
    for threads, samples in profile.reads.items():
        yield from _reads(profile.widest.name, samples, {"threads": threads})
    for processor in profile.processors:
        yield from _processor(processor.name, processor.samples, {"threads": processor.cores})
    for name, link in profile.links.items():
        yield from _copies(name, link)
    if profile.busy is not None:
        yield from _busy(profile, profile.busy)
    if profile.joint is not None:
        yield from _joint(profile.joint)
    if profile.handovers is not None:
        yield from _handovers(profile.handovers)
    if profile.between_passes is not None:
        for (device, pieces), seconds in profile.between_passes.seconds.items():
            yield _reading("between passes", device, "s", seconds, {"pieces": pieces})
    if profile.cuda is not None:
        yield from _processor("cuda", profile.cuda.samples, {})
        for name, link in profile.cuda.links.items():
            yield from _copies(cuda_lane(name, profile), link)
        for name, contended in profile.cuda.contended.items():
            yield from _contended(profile.processors[0].name, cuda_lane(name, profile), contended)
    for disk in profile.disks:
        for readers, rates in disk.rates.items():
            given: Conditions = {"bytes": BLOCK, "readers": readers}
            yield _reading(RANDOM_READ, disk.folder[-_MOST_LETTERS:], "bytes/s", rates, given)
    if profile.others is not None:
        yield _reading(OTHERS, profile.widest.name, "share", [profile.others], {})


def _contended(host: str, link: str, samples: ContendedSamples) -> Iterator[Reading]:
    """The contended pair: each alone, and beside the other."""
    for beside, read, moved in (
        ("idle", samples.read, samples.link),
        ("busy", samples.read_beside, samples.link_beside),
    ):
        yield _reading(CONTENDED, host, "bytes/s", read, {"link": link, "other": beside})
        yield _reading(CONTENDED, link, "bytes/s", moved, {"host": host, "other": beside})


def cuda_lane(name: str, profile: Profile) -> str:
    """The name of a GPU's lane: the loopback's lanes keep the plain names when both are there."""
    return f"cuda-{name}" if profile.loopback else name


def _processor(name: str, samples: ProcessorSamples, given: Conditions) -> Iterator[Reading]:
    yield from _reads(name, samples, given)
    for what, shares in (("linear", samples.linear), ("attention", samples.attention)):
        for (fmt, size), values in shares.items():
            yield _reading(what, name, "share of read", values, {**given, "format": fmt, "bytes": size})
    for (fmt, size), values in samples.experts.items():
        yield _reading("experts", name, "share of read", values, {**given, "format": fmt, "bytes": size})
    several = (
        ("expert products", "FLOP/s", samples.expert_products),
        ("gemm", "FLOP/s", samples.gemm),
        ("inputs", "bytes/s", samples.inputs),
    )
    for what, unit, of_tokens in several:
        for (fmt, rounding, tokens), values in of_tokens.items():
            yield _reading(what, name, unit, values, {**given, "format": fmt, "rounding": rounding, "tokens": tokens})
    for fmt, values in samples.wide.items():
        yield _reading("attention", name, "FLOP/s", values, {**given, "format": fmt})


def _reads(name: str, samples: ProcessorSamples, given: Conditions) -> Iterator[Reading]:
    for size, rates in samples.footprint.items():
        yield _reading("read", name, "bytes/s", rates, {**given, "bytes": size, "pattern": "contiguous"})
    scattered: Conditions = {"bytes": samples.read_bytes, "pattern": "scattered"}
    yield _reading("read", name, "bytes/s", samples.read, {**given, **scattered})


def _copies(name: str, samples: LinkSamples) -> Iterator[Reading]:
    for size, seconds in samples.seconds.items():
        yield _reading("copy", name, "bytes/s", [size / t for t in seconds], {"bytes": size})


def _busy(profile: Profile, busy: BusySamples) -> Iterator[Reading]:
    host = profile.processors[0]
    yield from _processor(host.name, busy.host, {"link": "busy", "threads": host.cores})
    yield _reading("copy", "h2d", "bytes/s", busy.link, {"cpu": "busy"})


def _joint(joint: JointSamples) -> Iterator[Reading]:
    for link, rates in joint.read.items():
        beside: Conditions = {"beside": joint.names[1], "link": link}
        of_all = [*rates, *joint.throughout] if link == "idle" else rates
        yield _reading("joint read", joint.names[0], "bytes/s", of_all, beside)
    if joint.kept:
        alone: Conditions = {"beside": joint.names[1], "format": "bf16", "tokens": PRODUCT_TOKENS}
        yield _reading("joint compute", joint.names[0], "share of alone", list(joint.kept), alone)
    given: Conditions
    for (fmt, size), shares in joint.shares.items():
        given = {"beside": joint.names[1], "format": fmt, "bytes": size}
        yield _reading("joint products", joint.names[0], "share of joint read", shares, given)
    for (link, fmt, size), pair in joint.rates.items():
        for name, other, mine in zip(joint.names, joint.names[::-1], pair, strict=True):
            given = {"beside": other, "link": link, "format": fmt, "bytes": size}
            yield _reading("joint", name, "bytes/s", mine, given)


def _handovers(spent: HandoverSamples) -> Iterator[Reading]:
    copies = {"copy after work": spent.copy, "copy beside work": spent.beside}
    kinds = {"task": spent.task, "join": spent.join, "look up": spent.look_up, **copies, "handover": spent.handover}
    for kind, by_name in kinds.items():
        yield from (_reading(kind, name, "s", seconds, {}) for name, seconds in by_name.items())
    for (link, device, size), taken in spent.taken.items():
        added = [max(0.0, seconds) for seconds, _ in taken]
        yield _reading("taken", device, "s", added, {"link": link, "bytes": size})


def _reading(what: str, device: str, unit: str, values: list[float], given: Conditions) -> Reading:
    return Reading(what=what, device=device, conditions=given, unit=unit, figure=figure(values, MEASURED))
