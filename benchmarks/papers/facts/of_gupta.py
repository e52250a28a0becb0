"""Gupta & Dwarkadas: tiers, HeLM, All-CPU, overlap ratios, and the largest batches."""

from dataclasses import replace
from itertools import product

from benchmarks.papers import gupta
from benchmarks.papers.facts.answer import Answer, Answers, of_figure
from benchmarks.papers.figure import Traces
from benchmarks.papers.gupta_runs import ALLOCATORS, MEMORIES, OUTPUT, PROMPT, Asked, Method, run
from benchmarks.papers.published import GUPTA
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.strategies.offload.allocation import Tier
from helmsman.planner.strategies.offload.sublayers import achieved, sublayers
from helmsman.schemas.errors import InfeasibleError

MOST = 256
"""Batches that are tried."""
NOMINAL = 0.03
"""What 1 TB of 1,024 GB is off by."""
TIERS: tuple[Tier, ...] = ("storage", "host", "accelerator")


def answers() -> Answers:
    """Everything that is computed or given."""
    traces = Traces()
    drawn = (
        gupta.bandwidth,
        gupta.tiers,
        gupta.plain,
        gupta.packed,
        gupta.weights,
        gupta.helm,
        gupta.all_cpu,
        gupta.table_four,
    )
    found = [each for draw in drawn for each in draw(traces).found]
    shares = [each.fact for each in found if GUPTA[each.fact].unit == "%"]
    answered = of_figure(found, points=shares)
    answered = {fact: replace(each, doubt=GUPTA[fact].doubt) for fact, each in answered.items()}
    placed = achieved(load_model("opt-175b"), ALLOCATORS["Baseline"].tiers(load_model("opt-175b")))
    tiers = {f"GUPTA-F064.{place}": Answer(placed[tier], 1.0, points=True) for place, tier in enumerate(TIERS)}
    return {**answered, **tiers, **_catalogue(), **_compression(), **_batches(), **_memory_mode()}


def _catalogue() -> dict[str, Answer]:
    """Layers as FlexGen counts them, and what the records carry."""
    machine = load_hardware("a100-optane", None)
    small, large = load_model("opt-30b"), load_model("opt-175b")
    counts = {
        "F028": small.layers,
        "F029": sum(layer.count for layer in sublayers(small)),
        "F030": large.layers,
        "F031": sum(layer.count for layer in sublayers(large)),
        "F032": PROMPT,
        "F033": OUTPUT,
    }
    found = {f"GUPTA-{fact}": Answer(float(value), 0.0, "given") for fact, value in counts.items()}
    rates = {
        "F012": machine.memory("dram").capacity / 2**30,
        "F013": machine.memory("optane").capacity / 1e12,
        "F014": machine.device("cpu").read.value / 1e9,
    }
    cxl = {"F083": "CXL-FPGA", "F084": "CXL-ASIC"}
    rates |= {
        fact: load_hardware(MEMORIES[name][0], None).memory("cxl").bandwidth.value / 1e9 for fact, name in cxl.items()
    }
    return found | {f"GUPTA-{fact}": Answer(value, NOMINAL, "given") for fact, value in rates.items()}


def _compression() -> dict[str, Answer]:
    """What 4-bit groups save of transfers, and what expanding them costs (IV-B); compute of a prompt of 32 over 1."""
    found = {}
    for place, memory in enumerate(("NVDRAM", "MemoryMode")):
        whole, groups = (_loads(Asked(memory, compress=compress)) for compress in (False, True))
        found[f"GUPTA-F053.{place}"] = Answer(100 * (1 - groups / whole), 5.0, points=True)
    ratios = []
    for batch, phase in product((1, 8), (0, 1)):
        plain, packed = (
            run(Asked("NVDRAM", batch=batch, compress=compress)).layers[phase].overlaps for compress in (False, True)
        )
        ratios += [after.compute / before.compute for before, after in zip(plain, packed, strict=True)]
    found["GUPTA-F055.0"], found["GUPTA-F055.1"] = Answer(min(ratios)), Answer(max(ratios))
    one, many = (_compute(batch) for batch in (1, 32))
    return found | {"GUPTA-F049": Answer(many / one)}


def _loads(asked: Asked) -> float:
    return sum(layer.load for layer in run(asked).layers[1].layers)


def _compute(batch: int) -> float:
    """Seconds that OPT-30B's blocks compute in the prompt's pass."""
    layers = run(Asked("DRAM", batch=batch, compress=False, model="opt-30b")).layers[0].layers
    return sum(layer.compute for layer in layers if layer.kind in ("attention", "ffn"))


def _batches() -> dict[str, Answer]:
    """The largest batches that fit (IV-B, V-C): of the baseline without compression."""
    return {
        "GUPTA-F052.OPT-30B": Answer(float(_largest("Baseline", "opt-30b", False))),
        "GUPTA-F052.OPT-175B": Answer(float(_largest("Baseline", "opt-175b", False))),
        "GUPTA-F076": Answer(float(_largest("All-CPU", "opt-175b", True))),
    }


def _largest(method: Method, model: str, compress: bool) -> int:
    best = 0
    for batch in range(1, MOST + 1):
        try:
            run(Asked("NVDRAM", method, batch, compress, model))
        except InfeasibleError:
            break
        best = batch
    return best


def _memory_mode() -> dict[str, Answer]:
    """All-CPU in Memory Mode against NVDRAM, and All-CPU against the baseline (V-C)."""
    found = {}
    for batch, fact in ((1, "F078"), (8, "F079")):
        slow, fast = (run(Asked(memory, "All-CPU", batch)) for memory in ("NVDRAM", "MemoryMode"))
        gains = (1 - fast.ttft / slow.ttft, 1 - fast.tbt / slow.tbt)
        found |= {f"GUPTA-{fact}.{place}": Answer(100 * gain, 5.0, points=True) for place, gain in enumerate(gains)}
    base, all_cpu = run(Asked("NVDRAM", batch=8)), run(Asked("NVDRAM", "All-CPU", 8))
    return found | {"GUPTA-F074": Answer(100 * (all_cpu.rate / base.rate - 1), 5.0, points=True, doubt="E-GUPTA-14")}
