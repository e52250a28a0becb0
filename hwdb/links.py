"""Links: what `pcie4x16` carries, the default between a GPU and its host, between GPUs, and between NUMA nodes."""

import re
from collections.abc import Iterable, Sequence
from itertools import permutations

from helmsman.hwdb.catalogue import Cpu, Gpu, find_fabric
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.hardware import Link

_LANE = {1: 0.25e9, 2: 0.5e9, 3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8, 5: 32e9 * 128 / 130 / 8, 6: 60.5e9 / 8}
PCIE_SHARE = 0.782
"""The share of a PCIe link's raw rate that copies reach (`link_sources`)."""
FABRIC = "fabric"
"""The source of the rate of links that GPUs' boards have."""
_FABRIC_SHARE = 2 / 3, 0.8, 8 / 9
_SHARE_SOURCE = "0.8 of it (measured: 0.74 to 0.84, there and in NVIDIA/nccl#1264)"
_NAME = re.compile(r"^pcie[ -]?([1-6])(?:\.0)?[ -]?x[ -]?(1|2|4|8|16)$", re.IGNORECASE)


def raw_rate(name: str) -> float:
    """Bytes/s of one direction after line coding. Raises UsageError on an unknown link name."""
    match = _NAME.match(name.strip())
    if match is None:
        raise UsageError("unknown link", field="link", value=name, remedy="write for example pcie4x16 or pcie3x8")
    return _LANE[int(match[1])] * int(match[2])


def default_link(gpu: Gpu, cpu: Cpu, gpus: int = 1) -> str:
    """Return the slower generation and the narrower width of GPU and host, as a link name.

    `gpus` divide the lanes of a desktop or laptop processor, which has those of one slot; a server's slots have their
    own."""
    ends = [end for end in (gpu.pcie, cpu.pcie) if end is not None]
    if not ends:
        raise UsageError("no PCIe link is known for this pair", field="link", remedy="write for example pcie4x16")
    width = min(lanes for _, lanes in ends)
    if cpu.pcie is not None and not cpu.device_class.endswith("-server"):
        width = min(width, 1 << (cpu.pcie[1] // gpus).bit_length() - 1)
    return f"pcie{min(generation for generation, _ in ends)}x{width}"


def pcie_links(name: str, host: str, memory: str, suffix: str = "") -> tuple[Link, Link]:
    """Return both directions between the memories `host` and `memory`: lanes `h2d` and `d2h`, with `suffix`."""
    raw = raw_rate(name)
    kind = name.strip().lower().replace(" ", "").replace("-", "").replace(".0", "")
    latency = Figure(value=10e-6, p10=4e-6, p90=40e-6, source="pcie-latency")
    pageable = Figure(value=0.45, p10=0.35, p90=0.87, source="pcie-pageable")
    managed = Figure(value=0.45, p10=0.2, p90=0.7, source="pcie-managed")

    def link(lane: str, source: str, target: str, low: float) -> Link:
        rate = Figure(value=PCIE_SHARE * raw, p10=low * raw, p90=0.85 * raw, source="pcie-share")
        return Link(
            name=lane + suffix,
            source_memory=source,
            target_memory=target,
            kind=kind,
            bandwidth=rate,
            latency=latency,
            pageable=pageable,
            managed=managed,
        )

    return link("h2d", host, memory, 0.65), link("d2h", memory, host, 0.60)


def far_links(near: Iterable[Link], host: str) -> tuple[Link, ...]:
    """Return the links of a GPU to another NUMA node's memory `host`: as fast as to its own (`near`), whose lanes they
    use."""
    result = []
    for link in near:
        to_gpu = link.name.startswith("h2d")
        ends = {"source_memory": host} if to_gpu else {"target_memory": host}
        own = {"name": f"{link.name}-{host}", "shares": link.name, "latency": _later(link.latency)}
        result.append(link.model_copy(update={**ends, **own}))
    return tuple(result)


def node_links(memories: Sequence[str], rate: float) -> tuple[Link, ...]:
    """Return both directions between every two NUMA nodes' memories, `rate` bytes/s by the data sheet."""
    bandwidth = Figure(value=0.8 * rate, p10=0.5 * rate, p90=0.9 * rate, source="node-share")
    latency = Figure(value=1e-6, p10=2e-7, p90=1e-5, source="node-latency")
    return tuple(
        Link(
            name=f"node-{source}-{target}",
            source_memory=source,
            target_memory=target,
            kind="socket",
            bandwidth=bandwidth,
            latency=latency,
        )
        for source, target in permutations(memories, 2)
    )


def peer_links(memories: Sequence[str], gpu: Gpu, given: float | None) -> tuple[tuple[Link, ...], dict[str, Source]]:
    """Return both directions between every two GPUs' memories, with the sources of their figures: `given` bytes/s,
    else those of what joins such GPUs. There are none where nothing joins as many, or of one GPU."""
    fabric = None if gpu.fabric is None else find_fabric(gpu.fabric)
    joins = fabric is not None and len(memories) <= (fabric.most or len(memories))
    if len(memories) < 2 or (given is None and not joins):
        return (), {}
    if given is not None:
        name, rate = "peer", Figure(value=given, p10=given, p90=given, source="given-peer")
        source = Source(kind="user", where="--peer on the command line")
    else:
        assert fabric is not None and gpu.fabric is not None, "either joins them"
        low, middle, high = (share * fabric.rate for share in _FABRIC_SHARE)
        name, rate = gpu.fabric, Figure(value=middle, p10=low, p90=high, source=FABRIC)
        source = fabric.source.model_copy(update={"where": f"{fabric.source.where}; {_SHARE_SOURCE}"})
    latency = Figure(value=10e-6, p10=4e-6, p90=40e-6, source="pcie-latency")
    links = tuple(
        Link(
            name=f"p2p-{one}-{other}",
            source_memory=one,
            target_memory=other,
            kind=name,
            bandwidth=rate,
            latency=latency,
        )
        for one, other in permutations(memories, 2)
    )
    return links, {rate.source: source, latency.source: link_sources()[latency.source]}


def _later(latency: Figure) -> Figure:
    """A copy that crosses sockets begins some hundred nanoseconds later."""
    more = 3e-7
    ends = {end: getattr(latency, end) + more for end in ("value", "p10", "p90")}
    return latency.model_copy(update=ends)


def link_sources(nodes: int = 1) -> dict[str, Source]:
    """Where the effective share and the latency of links come from, those between `nodes` too."""
    share = (
        "fitted: H2D over Gen4 x16 (31.5 GB/s raw) is 24.4 (Park & Egger Fig 6a) and 24.9 GB/s (Gupta IV-A), "
        "E-X-04: 0.78; other generations and D2H assumed alike"
    )
    latency = "assumed: a small copy with its synchronisation, 4 to 40 us"
    pageable = (
        "assumed: NVIDIA, How to Optimize Data Transfers in CUDA C/C++: 2.31 of 5.77 and 5.37 of 6.19 GB/s; nearer the "
        "lower share, as links outgrew a copying core"
    )
    between = {
        "node-share": "assumed: of the data sheet's rate of all links between two sockets, 0.5 to 0.9",
        "node-latency": "assumed: a remote access and what it waits for, 0.2 to 10 us",
    }
    known = {name: Source(kind="assumed", where=where) for name, where in between.items()} if nodes > 1 else {}
    managed = (
        "assumed: NVIDIA, Maximizing Unified Memory Performance in CUDA (recalled): pages that fault migrate at about "
        "half of what copies reach; denser faults reach more, scattered ones less"
    )
    return {
        **known,
        "pcie-share": Source(kind="fitted", where=share),
        "pcie-latency": Source(kind="assumed", where=latency),
        "pcie-pageable": Source(kind="assumed", where=pageable),
        "pcie-managed": Source(kind="assumed", where=managed),
    }
