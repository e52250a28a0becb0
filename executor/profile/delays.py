"""How much longer the host's products take while the link moves data (PARK-43, 47)."""

from collections.abc import Iterator

from helmsman.executor.profile.readings import MEASURED
from helmsman.executor.profile.samples import ProcessorSamples, Profile
from helmsman.hwdb.fit import figure, quantile
from helmsman.schemas.figures import Figure
from helmsman.schemas.rounding import DEFAULT_ROUNDING


def link_slows(profile: Profile) -> dict[str, dict[str, Figure]]:
    """By link and device the part of its time that is added to work; only the link to the accelerator was kept busy.

    Of the accelerator nothing: its processors move the data, and what that costs it is an interruption
    (`fits.interrupts_of`)."""
    if profile.busy is None:
        return {}
    host = profile.processors[0]
    return {"h2d": {host.name: slowing(host.samples, profile.busy.host)}}


def slowing(alone: ProcessorSamples, busy: ProcessorSamples) -> Figure:
    """The median over products of all kinds and sizes that `busy` has, and how they differ; a product that gained lost
    nothing.

    Products are shares of the plain reads between which they ran, which a busy link slows as well."""
    quick = dict(_rates(alone))
    return figure([max(0.0, quick[product] / slow - 1.0) for product, slow in _rates(busy)], MEASURED)


def _rates(samples: ProcessorSamples) -> Iterator[tuple[object, float]]:
    """Products, each with its bytes/s or FLOP/s."""
    read = quantile(samples.read, 0.5)
    for op, kind in (("linear", samples.linear), ("attention", samples.attention)):
        yield from (((op, product), quantile(shares, 0.5) * read) for product, shares in kind.items())
    for (fmt, rounding, tokens), flops in samples.gemm.items():
        if rounding == DEFAULT_ROUNDING.of(fmt):  # each format counts once
            yield ("gemm", fmt, tokens), quantile(flops, 0.5)
