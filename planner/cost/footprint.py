"""Links whose rate depends on how much a plan keeps behind them: Optane, and its DRAM cache in Memory Mode."""

from collections.abc import Mapping
from math import exp

from helmsman.lowering.placement import Placed, shaped
from helmsman.planner.cost.curves import interpolate
from helmsman.planner.memory.usage import memory_use
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Footprint, Hardware, Link


def at_footprint(placed: Placed) -> Hardware:
    """The placement's hardware with the rates its links have for what the placement keeps."""
    if all(link.footprint is None for link in placed.hardware.links):
        return placed.hardware
    kept = {use.memory: use.weights + use.kv for use in memory_use(shaped(placed))}
    return with_kept(placed.hardware, kept)


def with_kept(hardware: Hardware, kept: Mapping[str, int]) -> Hardware:
    """`hardware` with the rates its links have while memories keep so many bytes."""
    links = tuple(_rated(link, kept) for link in hardware.links)
    return hardware.model_copy(update={"links": links})


def _rated(link: Link, kept: Mapping[str, int]) -> Link:
    footprint = link.footprint
    if footprint is None:
        return link
    size = max(1, kept.get(footprint.memory, 0))
    rate = _times(link.bandwidth, interpolate(footprint, size)) if footprint.at else link.bandwidth
    return link.model_copy(update={"bandwidth": _cached(rate, footprint, size), "footprint": None})


def _times(rate: Figure, share: Figure) -> Figure:
    ends = {end: getattr(rate, end) * getattr(share, end) for end in ("value", "p10", "p90")}
    return rate.model_copy(update={**ends, "source": share.source})


def hit_rate(size: float, cache: float) -> float:
    """The share of reads that a direct-mapped cache answers when `size` bytes are read again and again.

    Pages lie anywhere, so a page is alone in its place with probability exp(-size / cache); pages that share a place
    push each other out every time round."""
    return exp(-size / cache)


def _cached(rate: Figure, footprint: Footprint, size: int) -> Figure:
    """Seconds per byte are those of hits and of misses, each as often as it happens."""
    if footprint.cache is None or footprint.cached is None:
        return rate
    hits, fast = hit_rate(size, footprint.cache), footprint.cached
    ends = {end: 1 / (hits / getattr(fast, end) + (1 - hits) / getattr(rate, end)) for end in ("value", "p10", "p90")}
    return rate.model_copy(update=ends)
