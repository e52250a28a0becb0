"""HELM: the search over splits, decode speed of four engines, contexts, batches and the cost model's errors.

Its three machines are records; launch floors of its own executor come from its all-GPU rows (E-HELM-12)."""

from collections.abc import Iterator
from functools import lru_cache

from benchmarks.helm_baselines import ENGINES as BASELINES
from benchmarks.helm_baselines import MACHINES, OUTPUT_TOKENS, PROMPT_TOKENS, ROWS, predicted
from benchmarks.papers.chart import Chart
from benchmarks.papers.figure import Axis, Drawing, Fact, Figure, Found, Series, Traces
from benchmarks.papers.published import HELM
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.prediction.launches import driven
from helmsman.planner.search import exhaustive
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.schemas.workload import Workload

MODELS = ("Qwen3-4B", "Qwen3-8B", "Qwen3-14B", "Qwen3-32B")
ENGINES = ("HELM", "Accelerate", "DeepSpeed", "vLLM")
LENGTHS = tuple(2**power for power in range(7, 16))
"""Fig 6.1's sweep of output tokens."""
SPEEDS = {
    ("4060", "Qwen3-8B"): "HELM-F101",
    ("3090", "Qwen3-4B"): "HELM-F125",
    ("3090", "Qwen3-8B"): "HELM-F133",
    ("3090", "Qwen3-14B"): "HELM-F141",
    ("L40S", "Qwen3-4B"): "HELM-F157",
    ("L40S", "Qwen3-8B"): "HELM-F165",
}
LONGEST = {
    ("4060", "Qwen3-8B"): "HELM-F190",
    ("3090", "Qwen3-4B"): "HELM-F193",
    ("3090", "Qwen3-8B"): "HELM-F194",
    ("3090", "Qwen3-32B"): "HELM-F196",
    ("L40S", "Qwen3-4B"): "HELM-F202",
    ("L40S", "Qwen3-8B"): "HELM-F203",
    ("L40S", "Qwen3-32B"): "HELM-F208",
}
BATCHED = {
    ("3090", "Qwen3-4B"): ("HELM-F228", "HELM-F229", "HELM-F230", "HELM-F231"),
    ("3090", "Qwen3-8B"): ("HELM-F232", "HELM-F233", "HELM-F234", "HELM-F235"),
    ("3090", "Qwen3-14B"): ("HELM-F236",),
    ("L40S", "Qwen3-4B"): ("HELM-F244", "HELM-F245", "HELM-F246", "HELM-F247"),
    ("L40S", "Qwen3-8B"): ("HELM-F248",),
}
MEASURED = {
    ("4060", "Qwen3-8B"): "HELM-F320",
    ("3090", "Qwen3-4B"): "HELM-F304",
    ("3090", "Qwen3-8B"): "HELM-F308",
    ("3090", "Qwen3-14B"): "HELM-F312",
    ("L40S", "Qwen3-4B"): "HELM-F324",
    ("L40S", "Qwen3-8B"): "HELM-F328",
}
FACTS: dict[str, Fact] = HELM | {
    f"HELM-{row.fact}": Fact("Table 6.1", f"decode: {row.engine}, {row.machine}, {row.model}", row.speed, "tokens/s")
    for row in ROWS
    if row.speed is not None
}


def figures() -> Iterator[Figure]:
    """In the order of the paper."""
    step, machine = Axis("ms a token"), Axis("")
    units = Axis("units on the CPU (embedding, blocks, output)")
    yield Chart("helm-4.4", "HELM Fig 4.4: partition search", units, step, HELM, search).figure
    longest = Axis("output tokens", base=2, low=64.0)
    yield Chart("helm-6.1", "HELM Fig 6.1: longest outputs", machine, longest, HELM, contexts, "bars").figure
    yield Chart("helm-6.2", "HELM Fig 6.2: latency of a token", machine, step, FACTS, latency, "bars").figure
    speed = Axis("tokens/s")
    yield Chart("helm-table6.1", "HELM Table 6.1: decode speed", machine, speed, FACTS, speeds, "bars").figure
    yield Chart("helm-table6.2", "HELM Table 6.2: batches", Axis("batch", base=2), speed, HELM, batches).figure
    yield Chart("helm-table6.5", "HELM Table 6.5: predicted and measured", machine, step, HELM, model, "bars").figure


def split(machine: str, name: str, output: int = OUTPUT_TOKENS, batch: int = 1) -> LayerSplit:
    """HELM's question."""
    return _split(machine, name, output, batch, False)


def _split(machine: str, name: str, output: int, batch: int, offload: bool) -> LayerSplit:
    hardware = load_hardware(MACHINES[machine], None)
    context = PROMPT_TOKENS + output
    work = Workload(prompt_tokens=PROMPT_TOKENS, output_tokens=output, batch=batch, context=context)
    options = SplitQuestion(kv_offload=offload, objective="latency")
    machine = driven(roles(hardware), load_model(name), work, options.weights, options.kv)
    return LayerSplit(load_model(name), machine, work, options, CostModel(machine.hardware))


@lru_cache(maxsize=128)
def best(asked: tuple[str, str], output: int = OUTPUT_TOKENS, batch: int = 1) -> tuple[str, float] | None:
    """The label and the seconds of a step of HELM's plan; None where nothing fits."""
    question = split(*asked, output, batch)
    ranked = exhaustive(question.candidates(), question.evaluate).feasible
    return (question.label(ranked[0][0]), ranked[0][1].value) if ranked else None


def search(traces: Traces) -> Drawing:
    """T_plan over k of the running example, and what of it fits."""
    question = split("4060", "Qwen3-8B")
    scores = [(float(k), question.evaluate(k)) for k in question.candidates()]
    every = Series("all splits", tuple(k for k, _ in scores), tuple(1e3 * score.value for _, score in scores))
    fits = [(k, 1e3 * score.value) for k, score in scores if score.feasible]
    feasible = Series("that fit", tuple(k for k, _ in fits), tuple(ms for _, ms in fits))
    last, (at, ms) = scores[-1], min(fits, key=lambda each: each[1])
    found = (Found("HELM-F034", ms, at, "that fit"), Found("HELM-F023", 1e3 * last[1].value, last[0], "all splits"))
    note = (
        f"The best split is k = {at:g}, {question.label(int(at))}; the text's 186 ms are 18 x 8.6 + 17 x 1.8, 21 units "
        "would be 205.5 ms by its own rates (E-HELM-02), and 244 ms were measured (Table 6.5)."
    )
    return Drawing("Qwen3-8B on an RTX 4060 laptop, 128 + 128 tokens", (every, feasible), found, (note,))


def contexts(traces: Traces) -> Drawing:
    """What memory allows, by the sweep of the paper; it saw these lengths run, which bounds them from below."""
    series, found = [], []
    for machine in MACHINES:
        groups, longest = [], []
        for (there, name), fact in LONGEST.items():
            if there == machine:
                groups.append(name)
                longest.append(_longest(machine, name))
                found.append(Found(fact, longest[-1], name, "HELM", machine))
        series.append(Series("HELM", tuple(groups), tuple(longest), machine))
    note = "Lengths are powers of two up to 32,768, as swept there; caches of the accelerator's blocks in host memory."
    return Drawing("128 tokens of prompt, f16, caches may live in host memory", tuple(series), tuple(found), (note,))


def _longest(machine: str, name: str) -> float | None:
    """The longest output for which some split fits, with caches on the accelerator or in host memory."""
    questions = ((length, offload) for length in reversed(LENGTHS) for offload in (False, True))
    for length, offload in questions:
        question = _split(machine, name, length, 1, offload)
        if any(not question.shortage(k) for k in question.candidates()):
            return float(length)
    return None


def latency(traces: Traces) -> Drawing:
    """The two rows that the text gives, HELM beside Accelerate."""
    rows = (("4060", "Qwen3-8B", "HELM-F212"), ("3090", "Qwen3-14B", "HELM-F214"))
    groups = tuple(f"{machine}, {name}" for machine, name, _ in rows)
    helm = tuple(_milliseconds((machine, name)) for machine, name, _ in rows)
    accelerate = tuple(_baseline("Accelerate", machine, name) for machine, name, _ in rows)
    found = [Found(fact, ms, group, "HELM") for (_, _, fact), ms, group in zip(rows, helm, groups, strict=True)]
    series = (Series("HELM", groups, helm), Series("Accelerate", groups, _inverse(accelerate)))
    return Drawing("medians of a token, 128 + 128 tokens, f16", series, tuple(found))


def speeds(traces: Traces) -> Drawing:
    """Table 6.1, a panel a machine."""
    series, found = [], []
    published = {(row.engine, row.machine, row.model): f"HELM-{row.fact}" for row in ROWS if row.speed is not None}
    published |= {("HELM", *key): fact for key, fact in SPEEDS.items()}
    for machine in MACHINES:
        for engine in ENGINES:
            values = tuple(_speed(engine, machine, name) for name in MODELS)
            series.append(Series(engine, MODELS, values, machine))
            for name, value in zip(MODELS, values, strict=True):
                fact = published.get((engine, machine, name))
                if fact in FACTS:
                    found.append(Found(fact, value, name, engine, machine))
    notes = ("– does not fit; DeepSpeed with resident weights, as its speeds say (E-HELM-17).",)
    return Drawing("decode, 128 + 128 tokens, batch 1, f16", tuple(series), tuple(found), notes)


def _speed(engine: str, machine: str, name: str) -> float | None:
    if engine != "HELM":
        return _baseline(engine, machine, name)
    chosen = best((machine, name))
    return None if chosen is None else 1 / chosen[1]


def _baseline(engine: str, machine: str, name: str) -> float | None:
    return predicted(BASELINES[engine], machine, name, OUTPUT_TOKENS)[0]


def _inverse(speeds: tuple[float | None, ...]) -> tuple[float | None, ...]:
    return tuple(None if speed is None else 1e3 / speed for speed in speeds)


def _milliseconds(asked: tuple[str, str]) -> float | None:
    chosen = best(asked)
    return None if chosen is None else 1e3 * chosen[1]


def batches(traces: Traces) -> Drawing:
    """Tokens/s of all sequences together."""
    counts = (1, 2, 4, 8)
    series, found = [], []
    for (machine, name), facts in BATCHED.items():
        values = tuple(_rate((machine, name), count) for count in counts)
        series.append(Series(name, tuple(float(count) for count in counts), values, machine))
        for fact, count, value in zip(facts, counts, values, strict=False):
            found.append(Found(fact, value, float(count), name, machine))
    note = "Measured steps grow by about 11 ms a sequence on the 3090, which no roofline explains (E-HELM-15)."
    return Drawing("decode, 128 + 128 tokens, f16", tuple(series), tuple(found), (note,))


def _rate(asked: tuple[str, str], batch: int) -> float | None:
    chosen = best(asked, batch=batch)
    return None if chosen is None else batch / chosen[1]


def model(traces: Traces) -> Drawing:
    """Our prediction beside the measurement that the paper gives."""
    groups = tuple(f"{machine}\n{name}" for machine, name in MEASURED)
    values = tuple(_milliseconds(key) for key in MEASURED)
    pairs = zip(MEASURED.values(), values, groups, strict=True)
    found = tuple(Found(fact, value, group, "predicted here") for fact, value, group in pairs)
    plans = ", ".join(
        f"{machine} {name} {chosen[0]}" for machine, name in MEASURED if (chosen := best((machine, name)))
    )
    note = f"Stars are measured there. Plans: {plans}. Launch floors of the 3090 and L40S come from the all-GPU rows."
    return Drawing(
        "a decode step, 128 + 128 tokens, batch 1, f16", (Series("predicted here", groups, values),), found, (note,)
    )
