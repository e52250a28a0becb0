"""PCIe links: what `pcie4x16` carries, and the default between a GPU and its host."""

import re

from helmsman.hwdb.catalogue import Cpu, Gpu
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.hardware import Link

_LANE = {1: 0.25e9, 2: 0.5e9, 3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8, 5: 32e9 * 128 / 130 / 8, 6: 60.5e9 / 8}
_NAME = re.compile(r"^pcie[ -]?([1-6])(?:\.0)?[ -]?x[ -]?(1|2|4|8|16)$", re.IGNORECASE)


def raw_rate(name: str) -> float:
    """Bytes/s of one direction after line coding. Raises UsageError on an unknown link name."""
    match = _NAME.match(name.strip())
    if match is None:
        raise UsageError("unknown link", field="--link", value=name, remedy="write for example pcie4x16 or pcie3x8")
    return _LANE[int(match[1])] * int(match[2])


def default_link(gpu: Gpu, cpu: Cpu) -> str:
    """The slower generation and the narrower width of GPU and host, as a link name."""
    ends = [end for end in (gpu.pcie, cpu.pcie) if end is not None]
    if not ends:
        raise UsageError("no PCIe link is known for this pair", field="--link", remedy="write for example pcie4x16")
    return f"pcie{min(generation for generation, _ in ends)}x{min(lanes for _, lanes in ends)}"


def pcie_links(name: str, host: str, memory: str, suffix: str = "") -> tuple[Link, Link]:
    """Both directions between the memories `host` and `memory`: lanes `h2d` and `d2h`, with `suffix`."""
    raw = raw_rate(name)
    kind = name.strip().lower().replace(" ", "").replace("-", "").replace(".0", "")
    latency = Figure(value=10e-6, p10=4e-6, p90=40e-6, source="pcie-latency")
    pageable = Figure(value=0.45, p10=0.35, p90=0.87, source="pcie-pageable")

    def link(lane: str, source: str, target: str, low: float) -> Link:
        rate = Figure(value=0.782 * raw, p10=low * raw, p90=0.85 * raw, source="pcie-share")
        return Link(
            name=lane + suffix,
            source_memory=source,
            target_memory=target,
            kind=kind,
            bandwidth=rate,
            latency=latency,
            pageable=pageable,
        )

    return link("h2d", host, memory, 0.65), link("d2h", memory, host, 0.60)


def link_sources() -> dict[str, Source]:
    """Where the effective share and the latency of a PCIe link come from."""
    share = (
        "fitted: H2D over Gen4 x16 (31.5 GB/s raw) is 24.4 (Park & Egger Fig 6a) and 24.9 GB/s (Gupta IV-A), "
        "E-X-04: 0.78; other generations and D2H assumed alike"
    )
    latency = "assumed: a small copy with its synchronisation, 4 to 40 us"
    pageable = (
        "assumed: NVIDIA, How to Optimize Data Transfers in CUDA C/C++: 2.31 of 5.77 and 5.37 of 6.19 GB/s; nearer the "
        "lower share, as links outgrew a copying core"
    )
    return {
        "pcie-share": Source(kind="fitted", where=share),
        "pcie-latency": Source(kind="assumed", where=latency),
        "pcie-pageable": Source(kind="assumed", where=pageable),
    }
