"""Gupta & Dwarkadas: bandwidth, tiers, overlap of layers, HeLM, All-CPU and the projection to CXL, on their machine.

One rate of the records was fitted, expansion, to All-CPU at batch 1 (F127, F130); everything else follows."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from benchmarks.papers.chart import Chart
from benchmarks.papers.figure import At, Axis, Drawing, Figure, Found, Series, Traces
from benchmarks.papers.gupta_runs import ALLOCATORS, MEMORIES, Asked, Method, Run, run
from benchmarks.papers.published import GUPTA
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.footprint import with_kept
from helmsman.planner.strategies.offload.sublayers import achieved, sublayers

GB = 1e9
TIERS = ("SSD", "FSDAX", "NVDRAM", "MemoryMode", "DRAM")
CXL = ("NVDRAM", "CXL-FPGA", "CXL-ASIC")
SHAPE = "OPT-175B, 128 + 21 tokens"
METRICS = (("TTFT, s", "ttft"), ("TBT, s", "tbt"), ("tokens/s", "rate"))
TABLE_IV: dict[tuple[Method, str, int], tuple[str, str, str, str]] = {
    ("Baseline", "NVDRAM", 1): ("F085", "F088", "F091", "F094"),
    ("Baseline", "CXL-FPGA", 1): ("F086", "F089", "F092", "F095"),
    ("Baseline", "NVDRAM", 8): ("F097", "F100", "F103", "F106"),
    ("Baseline", "CXL-FPGA", 8): ("F098", "F101", "F104", "F107"),
    ("All-CPU", "NVDRAM", 1): ("F121", "F124", "F127", "F130"),
    ("All-CPU", "NVDRAM", 8): ("F133", "F136", "F139", "F142"),
    ("All-CPU", "NVDRAM", 44): ("F145", "F148", "F151", "F154"),
}
"""Facts of attention and FFN in the prompt's pass, then in decode steps."""


def figures() -> Iterator[Figure]:
    """In the order of the paper."""
    size = Axis("GB read again and again", base=2)
    yield Chart("gupta-3", "HeLM Fig 3: host memory and the GPU", size, Axis("GB/s"), GUPTA, bandwidth).figure
    bars = Axis(""), Axis("")
    yield Chart("gupta-4", "HeLM Fig 4: tiers, f16", *bars, GUPTA, tiers, "bars").figure
    seconds = Axis("seconds of a layer")
    yield Chart(
        "gupta-5", "HeLM Fig 5: layers beside the next one's load, f16", Axis(""), seconds, GUPTA, plain, "bars"
    ).figure
    yield Chart("gupta-6", "HeLM Fig 6: the same, 4-bit groups", Axis(""), seconds, GUPTA, packed, "bars").figure
    load = Axis("seconds to load")
    yield Chart("gupta-7a", "HeLM Fig 7a: loads of layers 0 to 69", Axis("layer"), load, GUPTA, loads).figure
    share = Axis("% of weights on the GPU", high=100.0)
    yield Chart("gupta-7b", "HeLM Fig 7b, 7c, 10: where weights are", Axis(""), share, GUPTA, weights, "bars").figure
    yield Chart(
        "gupta-8", "HeLM Fig 8: overlap in the prompt's pass, 4-bit", Axis(""), seconds, GUPTA, prompts, "bars"
    ).figure
    yield Chart("gupta-11", "HeLM Fig 11: HeLM at batch 1", *bars, GUPTA, helm, "bars").figure
    yield Chart("gupta-12", "HeLM Fig 12: All-CPU at batches 1, 8, 44", *bars, GUPTA, all_cpu, "bars").figure
    yield Chart("gupta-13", "HeLM Fig 13: projection to CXL", *bars, GUPTA, projection, "bars").figure
    ratio = Axis("compute of a layer / load of the next", base=10, low=0.05)
    yield Chart("gupta-table4", "HeLM Table IV: overlap ratios", Axis(""), ratio, GUPTA, table_four, "bars").figure


def bandwidth(traces: Traces) -> Drawing:
    """Rates of the records' links over what is kept behind them (GUPTA-03 to 06)."""
    sizes = tuple(2.0**power for power in range(-2, 9))
    ways = {"host to GPU": False, "GPU to host": True}
    series = [
        Series(name, sizes, tuple(_rate(name, back, size) for size in sizes), panel)
        for (panel, back), name in product(ways.items(), ("DRAM", "NVDRAM", "MemoryMode"))
    ]
    found = (
        Found("GUPTA-F035", _rate("NVDRAM", False, 4.0), 4.0, "NVDRAM", "host to GPU"),
        Found("GUPTA-F036", _rate("NVDRAM", False, 32.0), 32.0, "NVDRAM", "host to GPU"),
        Found("GUPTA-F037", _rate("NVDRAM", True, 1.0), 1.0, "NVDRAM", "GPU to host"),
    )
    note = (
        "The record's Optane falls with what weights need (E-GUPTA-09: 17.97 and 16.73 GB/s at 83 and 297 GB); "
        "copies of one buffer of 32 GB reached less (F036), and are no case of inference."
    )
    return Drawing("rates of the records, by what is kept behind the link", tuple(series), found, (note,))


def _rate(memory: str, back: bool, size: float) -> float:
    machine, host, _ = MEMORIES[memory]
    hardware = with_kept(load_hardware(machine, None), {host: round(size * GB)})
    link = hardware.link("vram", host) if back else hardware.link(host, "vram")
    assert link is not None
    return link.bandwidth.value / GB


def tiers(traces: Traces) -> Drawing:
    """GUPTA-46: the baseline over tiers, batch 1 and 8."""
    found = []
    for batch, fact in ((1, "GUPTA-F042"), (8, "GUPTA-F043")):
        slow, fast = (run(Asked(memory, batch=batch, compress=False)) for memory in ("SSD", "FSDAX"))
        found += _better(fact, slow, fast)
    found += _better("GUPTA-F046", *(run(Asked(memory, compress=False)) for memory in ("NVDRAM", "MemoryMode")))
    dram, optane = (run(Asked(memory, model="opt-30b", compress=False)) for memory in ("DRAM", "NVDRAM"))
    changes = (optane.ttft / dram.ttft, optane.tbt / dram.tbt, optane.rate / dram.rate)
    found += [Found(f"GUPTA-F044.{at}", 100 * (change - 1)) for at, change in enumerate(changes)]
    bars = {f"batch {batch}": [Asked(tier, batch=batch, compress=False) for tier in TIERS] for batch in (1, 8)}
    return Drawing(f"{SHAPE}, FlexGen's allocation", tuple(_metrics(bars, TIERS)), tuple(found))


def _better(fact: str, before: Run, after: Run) -> list[Found]:
    """By how many per cent TTFT, TBT and throughput are better."""
    changes = (1 - after.ttft / before.ttft, 1 - after.tbt / before.tbt, after.rate / before.rate - 1)
    return [Found(f"{fact}.{at}", 100 * change) for at, change in enumerate(changes)]


def _metrics(bars: Mapping[Method, list[Asked]] | Mapping[str, list[Asked]], groups: Sequence[At]) -> Iterator[Series]:
    """A panel each for TTFT, TBT and throughput."""
    for panel, name in METRICS:
        for label, asked in bars.items():
            yield Series(label, tuple(groups), tuple(getattr(run(each), name) for each in asked), panel)


def plain(traces: Traces) -> Drawing:
    """GUPTA-41: compute against loads without compression."""
    found = (*_saved("GUPTA-F050.0", "NVDRAM", False), *_saved("GUPTA-F050.1", "MemoryMode", False))
    return Drawing(
        f"{SHAPE}, batch 1, FlexGen's allocation", tuple(_overlaps(("NVDRAM", "MemoryMode", "DRAM"), False)), found
    )


def packed(traces: Traces) -> Drawing:
    """The same with expansion."""
    found = (*_saved("GUPTA-F054.0", "NVDRAM", True), *_saved("GUPTA-F054.1", "MemoryMode", True))
    return Drawing(
        f"{SHAPE}, batch 1, FlexGen's allocation", tuple(_overlaps(("NVDRAM", "MemoryMode", "DRAM"), True)), found
    )


def _saved(fact: str, memory: str, compress: bool) -> Iterator[Found]:
    """Per cent of the loads of a decode step that DRAM would save."""
    slow, ideal = (sum(_loads(Asked(each, compress=compress))) for each in (memory, "DRAM"))
    yield Found(fact, 100 * (1 - ideal / slow))


def _loads(asked: Asked) -> tuple[float, ...]:
    return tuple(layer.load for layer in run(asked).layers[1].layers)


def _overlaps(memories: Sequence[str], compress: bool) -> Iterator[Series]:
    for panel, phase in (("prompt", 0), ("decode step", 1)):
        yield from _sides([(memory, Asked(memory, compress=compress)) for memory in memories], panel, phase)


def _sides(bars: Sequence[tuple[str, Asked]], panel: str, phase: int) -> Iterator[Series]:
    """Compute of a layer, and the load of the next one that it hides, for both kinds."""
    for kind, name, following in (("attention", "MHA", "FFN"), ("ffn", "FFN", "MHA")):
        pairs = [next(o for o in run(asked).layers[phase].overlaps if o.kind == kind) for _, asked in bars]
        groups = tuple(label for label, _ in bars)
        yield Series(f"{name} compute", groups, tuple(pair.compute for pair in pairs), panel)
        yield Series(f"{following} load", groups, tuple(pair.load for pair in pairs), panel)


def loads(traces: Traces) -> Drawing:
    """GUPTA-42: the saw of FlexGen's allocation, and HeLM's."""
    layers = tuple(float(layer) for layer in range(70))
    named = [(memory, Asked(memory)) for memory in TIERS]
    series = [Series(name, layers, _loads(asked)[:70], "FlexGen's allocation, every tier") for name, asked in named]
    evened = _loads(Asked("NVDRAM", "HeLM"))[:70]
    series += [
        Series("NVDRAM", layers, _loads(Asked("NVDRAM"))[:70], "NVDRAM, HeLM beside it"),
        Series("NVDRAM, HeLM", layers, evened, "NVDRAM, HeLM beside it"),
    ]
    return Drawing(f"{SHAPE}, batch 1, 4-bit groups", tuple(series))


def weights(traces: Traces) -> Drawing:
    """Shares of the accelerator in attention, in the FFN and in all."""
    model = load_model("opt-175b")
    series, shares = [], {}
    for name, allocator in ALLOCATORS.items():
        placed = allocator.tiers(model)
        parts = []
        for layer in sublayers(model)[1:3]:
            here = sum(
                t.elements for t, tier in zip(layer.tensors, placed[layer.kind], strict=True) if tier == "accelerator"
            )
            parts.append(100 * here / sum(tensor.elements for tensor in layer.tensors))
        shares[name] = achieved(model, placed)["accelerator"]
        series.append(Series(name, ("MHA", "FFN", "all"), (*parts, shares[name])))
    found = (
        Found("GUPTA-F064", shares["Baseline"], "all", "Baseline"),
        Found("GUPTA-F067", shares["HeLM"], "all", "HeLM"),
    )
    return Drawing("OPT-175B, (0, 80, 20) asked for; HeLM as printed", tuple(series), found)


def prompts(traces: Traces) -> Drawing:
    """HeLM Fig 8: prefill at both batches."""
    series: list[Series] = []
    for batch in (1, 8):
        bars = [(memory, Asked(memory, batch=batch)) for memory in ("NVDRAM", "MemoryMode", "DRAM")]
        series += _sides(bars, f"batch {batch}", 0)
    return Drawing(f"{SHAPE}, FlexGen's allocation", tuple(series))


def helm(traces: Traces) -> Drawing:
    """GUPTA-43."""
    memories = ("NVDRAM", "MemoryMode", "DRAM")
    methods: tuple[Method, ...] = ("Baseline", "HeLM")
    bars = {method: [Asked(memory, method) for memory in memories] for method in methods}
    found: list[Found] = []
    for memory, fact in (("NVDRAM", "GUPTA-F069"), ("MemoryMode", "GUPTA-F071")):
        found += _better(fact, run(Asked(memory)), run(Asked(memory, "HeLM")))[:2]
    return Drawing(f"{SHAPE}, 4-bit groups", tuple(_metrics(bars, memories)), tuple(found))


def all_cpu(traces: Traces) -> Drawing:
    """GUPTA-44: the baseline as far as it fits uncompressed (E-GUPTA-05), All-CPU further."""
    memories = ("NVDRAM", "MemoryMode", "DRAM")
    shapes: tuple[tuple[Method, int], ...] = (
        ("Baseline", 1),
        ("All-CPU", 1),
        ("Baseline", 8),
        ("All-CPU", 8),
        ("All-CPU", 44),
    )
    bars = {f"{method} {batch}": [Asked(memory, method, batch) for memory in memories] for method, batch in shapes}
    baseline, large = run(Asked("NVDRAM", batch=8)), run(Asked("NVDRAM", "All-CPU", 44))
    single = run(Asked("NVDRAM", "All-CPU")).ttft / run(Asked("NVDRAM")).ttft
    found = (Found("GUPTA-F075", large.rate / baseline.rate), Found("GUPTA-F073", 100 * (single - 1)))
    return Drawing(f"{SHAPE}, 4-bit groups", tuple(_metrics(bars, memories)), found)


def projection(traces: Traces) -> Drawing:
    """GUPTA-45: HeLM for latency, All-CPU for throughput; CXL is not capped by the lanes before it, as printed."""
    shapes: tuple[tuple[Method, int], ...] = (("Baseline", 1), ("HeLM", 1), ("Baseline", 8), ("All-CPU", 44))
    bars = {f"{method} {batch}": [Asked(memory, method, batch) for memory in CXL] for method, batch in shapes}
    note = "CXL-ASIC's 28 GB/s are more than PCIe Gen4 reaches (E-GUPTA-10): a projection, not a machine."
    return Drawing(f"{SHAPE}, 4-bit groups", tuple(_metrics(bars, CXL)), notes=(note,))


def table_four(traces: Traces) -> Drawing:
    """Every cell that the copy at hand has."""
    phases = ("Prefill", "Decode")
    series, found = [], []
    groups = tuple(f"{method}\n{memory}\n{batch}" for method, memory, batch in TABLE_IV)
    ours = {key: run(Asked(memory, method, batch)).ratios for key in TABLE_IV for method, memory, batch in [key]}
    for at, (phase, name) in enumerate(product(phases, ("MHA compute / FFN load", "FFN compute / MHA load"))):
        series.append(Series(name, groups, tuple(ratios[at] for ratios in ours.values()), phase))
        for group, (key, facts) in zip(groups, TABLE_IV.items(), strict=True):
            found.append(Found(f"GUPTA-{facts[at]}", ours[key][at], group, name, phase))
    note = "Expansion was fitted to All-CPU, NVDRAM, batch 1, decode; 1 is a perfect overlap."
    return Drawing(
        "OPT-175B, 128 + 21 tokens, 4-bit groups; by allocation, memory and batch", tuple(series), tuple(found), (note,)
    )
