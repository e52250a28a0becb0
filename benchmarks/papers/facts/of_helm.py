"""HELM: the worked example of chapter 4, streaming softmax, and the tables of chapter 6."""

import math
from dataclasses import replace

from benchmarks.helm_baselines import ENGINES, MACHINES, OUTPUT_TOKENS, ROWS, question
from benchmarks.papers import helm
from benchmarks.papers.facts.answer import EXACT, MODELLED, ROUGH, Answer, Answers, Value, of_figure
from benchmarks.papers.figure import Traces
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.operation import Formats
from helmsman.lowering.ops import block_ops
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, parameters
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.memory.cache_bytes import kv_block_bytes
from helmsman.planner.search import exhaustive
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.figures import Figure
from helmsman.schemas.workload import Workload

MB, GB, KIB, MIB, MS = 1e6, 1e9, 2**10, 2**20, 1e-3
EXAMPLE = "Qwen3-8B"
"""Of chapter 4, on the RTX 4060 laptop."""
FRAMEWORK = 3.7e9
"""Bytes/s of PyTorch's f16 product on that laptop's CPU (F049): what the runs without HELM's kernel had."""
LATENCIES = {**helm.MEASURED, ("4060", "Qwen3-8B"): "HELM-F320"}
PLANS = {
    ("3090", "Qwen3-4B"): "HELM-F303",
    ("3090", "Qwen3-8B"): "HELM-F307",
    ("3090", "Qwen3-14B"): "HELM-F311",
    ("4060", "Qwen3-8B"): "HELM-F319",
    ("L40S", "Qwen3-4B"): "HELM-F323",
    ("L40S", "Qwen3-8B"): "HELM-F327",
}
PROMPTS = {
    ("4060", "Qwen3-8B"): "HELM-F102",
    ("3090", "Qwen3-4B"): "HELM-F126",
    ("3090", "Qwen3-8B"): "HELM-F134",
    ("3090", "Qwen3-14B"): "HELM-F142",
    ("L40S", "Qwen3-4B"): "HELM-F158",
    ("L40S", "Qwen3-8B"): "HELM-F166",
}
"""TTFT of HELM itself; that of the engines follows their decode speed by one (F103, F104)."""
DOUBTED = {"HELM-F125": "E-HELM-13", "HELM-F141": "E-HELM-13", "HELM-F214": "E-HELM-13", "HELM-F236": "E-HELM-13"}
FULL = {("3090", "Qwen3-14B"): ("HELM-F237", "HELM-F238", "HELM-F239")}
"""Batches of 2, 4, 8 that ran out of memory."""


def answers() -> Answers:
    """Everything that is computed or given."""
    return {
        **_catalogue(),
        **_example(),
        **_softmax(),
        **_tables(),
        **_engines(),
        **_prompts(),
        **_without_kernel(),
    }


def _catalogue() -> dict[str, Answer]:
    """What models and records say of what the paper gives its model."""
    dense = load_model(EXAMPLE).dense
    shape = (dense.hidden, dense.layers, dense.heads, dense.kv_heads, dense.head_dim, dense.ffn, 2)
    found = {f"HELM-F{number:03}": Answer(float(value), 0.0, "given") for number, value in enumerate(shape, 1)}
    laptop = load_hardware(MACHINES["4060"], None)
    link = laptop.link("dram", "vram")
    assert link is not None
    rates = {
        "HELM-F039": laptop.device("cpu").read.value / GB,
        "HELM-F040": laptop.device("cuda").read.value / GB,
        "HELM-F041": link.bandwidth.value / GB,
        "HELM-F045": laptop.memory("vram").available / 2**30,
    }
    found |= {fact: Answer(value, EXACT, "given") for fact, value in rates.items()}
    sizes = {"HELM-F083": "Qwen3-4B", "HELM-F084": "Qwen3-8B", "HELM-F085": "Qwen3-14B", "HELM-F086": "Qwen3-32B"}
    return found | {fact: Answer(2 * parameters(load_model(name)) / GB, 0.06, "given") for fact, name in sizes.items()}


def _size(tensors: list[Tensor]) -> int:
    return sum(tensor.size("f16") for tensor in tensors)


def _example() -> dict[str, Answer]:
    """Sizes of a block, roofline times without corrections, the estimate of what fits (4.1.1 to 4.1.3, 2.1 to 2.3)."""
    model = load_model(EXAMPLE)
    block = list(block_tensors(model, 0))
    attention = [tensor for tensor in block if tensor.op in ("q", "k", "v", "o")]
    ffn = [tensor for tensor in block if tensor.op in ("gate", "up", "down")]
    norms = [tensor for tensor in block if "norm" in tensor.op]
    cached = model.layers * kv_block_bytes(model, Workload(context=4096), "f16")
    split = _split("4060", EXAMPLE, CostOptions(corrections=False))
    step = Iteration(1, "decode", 1, 1, 1)
    units = model.units
    host = (split.seconds(units, step) - _ends(split, units, step)) / model.layers
    accelerator = (split.seconds(0, step) - _ends(split, 0, step)) / model.layers
    link = load_hardware(MACHINES["4060"], None).link("dram", "vram")
    assert link is not None
    one, many = (_intensity(tokens) for tokens in (1, 512))
    exact = {
        "F008": _size(attention) / MB,
        "F009": sum(tensor.elements for tensor in attention) / MB,
        "F010": _size(ffn) / MB,
        "F011": sum(tensor.elements for tensor in ffn) / MB,
        "F013": _size(block) / MB,
        "F014": 2 * model.hidden / KIB,
        "F015": float(units),
        "F016": 100 * _size(ffn) / _size(block),
        "F017": cached / 4096 / KIB,
        "F018": cached / MIB,
        "F019": host / MS,
        "F020": accelerator / MS,
        "F021": (link.latency.value + 2 * model.hidden / link.bandwidth.value) / 1e-6,
        "F022": model.layers * _size(block) / GB,
        "F023": model.layers * host / MS,
        "F024": 1 / (model.layers * host),
        "F025": float(math.floor(7e9 / _size(block))),
        "F026": one,
        "F027": many,
    }
    rounded = {"F012": _size(norms) / MB, "F021": exact["F021"], "F020": exact["F020"]}
    found = {f"HELM-{fact}": Answer(value, EXACT) for fact, value in exact.items()}
    return found | {f"HELM-{fact}": Answer(value, 0.12) for fact, value in rounded.items()}


def _intensity(tokens: int) -> float:
    """FLOPs a byte of weights, of a block's query projection."""
    step = Iteration(0, "prefill", 1, tokens, tokens)
    op = next(op for op in block_ops(load_model(EXAMPLE), 0, step, Formats()) if op.name == "q")
    return op.flops / op.weight_bytes


def _split(machine: str, name: str, options: CostOptions) -> LayerSplit:
    question = helm.split(machine, name)
    return replace(question, costs=CostModel(question.costs.hardware, options))


def _ends(split: LayerSplit, k: int, step: Iteration) -> float:
    """Seconds of embedding and output: a pass of two blocks twice, less that of four."""
    two, four = (replace(split, model=split.model.with_layers(layers)) for layers in (2, 4))
    place = {True: lambda each: each.model.units, False: lambda each: 0}[k > 0]
    return 2 * two.seconds(place(two), step) - four.seconds(place(four), step)


def _softmax() -> dict[str, Answer]:
    """Table 4.2, a token at a time, merged as PyTorch devices merge parts: m, s, o with weights e^(score - m)."""
    import torch

    from helmsman.executor.devices.torch.attention import attend_part, merge

    scores, values = (2.0, 4.0, 1.0, 0.0, 1.0, 2.0), (10.0, 30.0, 5.0, 2.0, 8.0, 12.0)
    query, seen, most, found = torch.ones(1, 1, 1, 1), None, -math.inf, list[float]()
    for score, value in zip(scores, values, strict=True):
        part = attend_part(query, torch.full((1, 1, 1, 1), score), torch.full((1, 1, 1, 1), value), None)
        seen = part if seen is None else merge(seen, part)
        most = max(most, score)
        total = math.exp(float(seen[1]) - most)
        found += [most, total, total * float(seen[0])]
    assert seen is not None
    states = {f"HELM-F{56 + place:03}": Answer(value, EXACT) for place, value in enumerate(found)}
    weights = {f"HELM-F076.{place}": Answer(math.exp(score - 4), EXACT) for place, score in enumerate(scores)}
    return (
        states
        | weights
        | {
            "HELM-F074": Answer(math.exp(scores[0] - scores[1]), EXACT),
            "HELM-F075": Answer(float(seen[0]), EXACT),
        }
    )


def _tables() -> dict[str, Answer]:
    """Tables 6.1, 6.2, 6.5, Fig 6.1 and 6.2, for HELM itself."""
    traces = Traces()
    drawn = [helm.latency(traces), helm.speeds(traces), helm.batches(traces), helm.model(traces)]
    found = of_figure(each for drawing in drawn for each in drawing.found)
    found = {fact: _doubted(fact, answer) for fact, answer in found.items()}
    found |= {each.fact: Answer(each.ours, 0.0, "at least", doubt="E-HELM-18") for each in helm.contexts(traces).found}
    found |= {fact: Answer(_plan(key)) for key, fact in PLANS.items()}
    found |= {fact: Answer("OOM" if _rate(key, batch) is None else _rate(key, batch)) for key, facts in FULL.items()
              for fact, batch in zip(facts, (2, 4, 8), strict=True)}  # fmt: skip
    errors = [abs(milliseconds / _published(fact) - 1) for key, fact in LATENCIES.items()
              if (milliseconds := _latency(key)) is not None]  # fmt: skip
    example = helm.search(traces).found
    return found | {
        "HELM-F340": Answer(100 * max(errors), 0.0, "at most", points=True),
        "HELM-F034": Answer(next(each.ours for each in example if each.fact == "HELM-F034"), doubt="E-HELM-02"),
    }


def _doubted(fact: str, answer: Answer) -> Answer:
    doubt = DOUBTED.get(fact, "")
    return replace(answer, doubt=doubt, tolerance=ROUGH if doubt else MODELLED)


def _published(fact: str) -> float:
    return helm.HELM[fact].value


def _latency(key: tuple[str, str]) -> float | None:
    chosen = helm.best(key)
    return None if chosen is None else 1e3 * chosen[1]


def _plan(key: tuple[str, str]) -> str | None:
    chosen = helm.best(key)
    return None if chosen is None else chosen[0]


def _rate(key: tuple[str, str], batch: int) -> float | None:
    chosen = helm.best(key, batch=batch)
    return None if chosen is None else batch / chosen[1]


def _engines() -> dict[str, Answer]:
    """Accelerate, DeepSpeed and vLLM: speeds, TTFT, failures, and the longest outputs."""
    found: dict[str, Answer] = {}
    for row in ROWS:
        asked = question(ENGINES[row.engine], row.machine, row.model, row.output_tokens)
        try:
            predicted = asked.decide({}).plan.predicted
        except InfeasibleError:
            predicted = None
        fact, number = f"HELM-{row.fact}", int(row.fact[1:])
        if number >= 190 and row.speed is None:
            ours: Value = float(row.output_tokens) if predicted else None
            found[fact] = Answer(ours, 0.0, "at least", doubt="E-HELM-18")
            continue
        speed = predicted.tokens_per_second.mid if predicted else "x"
        found[fact] = Answer(1e3 / speed if row.ms is not None and isinstance(speed, float) else speed)
        if number < 190 and row.ms is None:
            first = predicted.ttft.seconds.mid / MS if predicted else "x"
            found[f"HELM-F{number + 1:03}"] = Answer(first)
    return found | _ratios()


def _ratios() -> dict[str, Answer]:
    """HELM over Accelerate (6.3)."""
    found = {}
    facts = {("4060", "Qwen3-8B"): ("F220", "F221"), ("3090", "Qwen3-14B"): ("F222", "F223")}
    for (machine, name), names in facts.items():
        ours = _latency((machine, name))
        theirs = question(ENGINES["Accelerate"], machine, name, OUTPUT_TOKENS).decide({}).plan
        assert ours is not None
        ratio = theirs.predicted.decode.seconds.mid / MS / ours
        found |= {f"HELM-{fact}": Answer(ratio) for fact in names}
    return found | {"HELM-F227": _gap()}


def _gap() -> Answer:
    """By how much an all-GPU plan is slower than the plain frameworks, at most."""
    worst = 0.0
    for machine, name in (("3090", "Qwen3-4B"), ("3090", "Qwen3-8B"), ("L40S", "Qwen3-4B")):
        ours = _latency((machine, name))
        assert ours is not None
        for engine in ("Accelerate", "DeepSpeed"):
            plan = question(ENGINES[engine], machine, name, OUTPUT_TOKENS).decide({}).plan
            worst = max(worst, 1 - plan.predicted.decode.seconds.mid / MS / ours)
    return Answer(100 * worst, 0.0, "at most", points=True)


def _prompts() -> dict[str, Answer]:
    """HELM's TTFT p50 at 128 tokens."""
    found = {}
    for (machine, name), fact in PROMPTS.items():
        split = helm.split(machine, name)
        ranked = exhaustive(split.candidates(), split.evaluate).feasible
        found[fact] = Answer(split.prompt_seconds(ranked[0][0]) / MS)
    return found


def _without_kernel() -> dict[str, Answer]:
    """Table 6.3 with a host that reads weights as slowly as the framework's f16 product did (4.1.5)."""
    hardware = load_hardware(MACHINES["4060"], None)
    cpu = hardware.device("cpu")
    share = Figure(value=FRAMEWORK / cpu.read.value, p10=0.05, p90=0.1, source=cpu.efficiency[0].share[0].source)
    curve = cpu.efficiency[0].model_copy(update={"share": (share,)})
    slow = cpu.model_copy(update={"efficiency": (curve, *cpu.efficiency[1:])})
    machine = hardware.model_copy(update={"devices": (slow, *hardware.devices[1:])})
    split = LayerSplit(
        load_model(EXAMPLE),
        roles(machine),
        helm.split("4060", EXAMPLE).workload,
        SplitQuestion(objective="latency"),
        CostModel(machine),
    )
    ranked = exhaustive(split.candidates(), split.evaluate).feasible
    best, seconds = ranked[0][0], ranked[0][1].value
    with_kernel = _latency(("4060", EXAMPLE))
    assert with_kernel is not None
    stage = sum(term.seconds.mid for term in split.predicted(best).decode.document.terms if term.resource == "cpu")
    there = helm.split("4060", EXAMPLE)
    own = sum(term.seconds.mid for term in there.predicted(best).decode.document.terms if term.resource == "cpu")
    return {
        "HELM-F053": Answer(stage, doubt="E-HELM-24"),
        "HELM-F054": Answer(own / MS),
        "HELM-F271": Answer(1 / seconds),
        "HELM-F272": Answer(100 * (with_kernel * MS / seconds - 1), 5.0, points=True),
        "HELM-F282": Answer(seconds / MS),
    }
