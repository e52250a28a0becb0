"""How much longer a processor's products take while the link moves data (PARK-43, 47)."""

from collections.abc import Iterator

from helmsman.executor.profile.readings import MEASURED
from helmsman.executor.profile.samples import BusySamples, ProcessorSamples, Profile
from helmsman.hwdb.fit import figure, quantile
from helmsman.schemas.figures import Figure


def link_slows(profile: Profile) -> dict[str, dict[str, Figure]]:
    """By link and device the part of its time that is added to work; only the link to the accelerator was kept busy.

    Not of a device whose processors move the data: what that costs it is an interruption (`fits.interrupts_of`)."""
    if profile.busy is None:
        return {}
    alone = {processor.name: processor.samples for processor in profile.processors}
    moving = profile.processors[-1].name if profile.handovers is not None else None
    found = {device: slowing(alone[device], busy) for device, busy in measured(profile, profile.busy)}
    return {"h2d": {device: part for device, part in found.items() if device != moving}}


def measured(profile: Profile, busy: BusySamples) -> Iterator[tuple[str, ProcessorSamples]]:
    """The devices that were measured beside the busy link."""
    yield profile.processors[0].name, busy.host
    yield profile.processors[-1].name, busy.accelerator


def slowing(alone: ProcessorSamples, busy: ProcessorSamples) -> Figure:
    """The median over products of all kinds and sizes, and how they differ; a product that gained lost nothing.

    Products are shares of the plain reads between which they ran, which a busy link slows as well."""
    found = [max(0.0, quick / slow - 1.0) for quick, slow in zip(_rates(alone), _rates(busy), strict=True)]
    return figure(found, MEASURED)


def _rates(samples: ProcessorSamples) -> Iterator[float]:
    """Bytes/s or FLOP/s of every product."""
    read = quantile(samples.read, 0.5)
    for kind in (samples.linear, samples.attention):
        yield from (quantile(shares, 0.5) * read for shares in kind.values())
    yield from (quantile(flops, 0.5) for flops in samples.gemm.values())
