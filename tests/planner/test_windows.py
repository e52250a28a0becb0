"""Windows of caches in plans: what is refused, what they need, what is predicted, and the search of layer splits."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from paged import make_paged_plan, with_window
from plans import GIB, make_hardware, make_plan
from shapes import small_model
from together import together

from helmsman import plan as planned
from helmsman.hwdb.compose import compose
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.memory.cache_bytes import caches_by_memory, whole_cache_bytes
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.prediction.between_terms import HANDOVER, JOIN, SUBMISSION
from helmsman.planner.prediction.predict import mean_step, pass_seconds, predict
from helmsman.planner.prediction.prompt_passes import weighted_passes
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_search import decide
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.planner.strategies.layer_windows import Window
from helmsman.schemas.errors import BadInputError, InfeasibleError
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Part, Plan, Schedule, Select
from helmsman.schemas.workload import Workload
from helmsman.simulator.stream import simulate

MODEL = small_model("qwen3")
WORK = Workload(prompt_tokens=180, output_tokens=20, context=200)


def plan(on_cpu: int = 0, **changes: Any) -> Plan:
    return make_paged_plan(MODEL, on_cpu, workload=WORK).model_copy(update=changes)


def rule(**changes: Any) -> KvRule:
    return plan().kv[-1].model_copy(update=changes)


def test_a_plan_with_a_window_is_accepted() -> None:
    assert accept(plan(2)).kv[-1].cache is not None


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "part": ({"kv": (rule(select=Select(part=Part(axis="heads", start=0, stop=1))), rule())}, "kv.0.cache"),
    "keys alone": ({"kv": (rule(select=Select(names="keys")), rule(cache=None, memory="vram"))}, "kv"),
    "no block": ({"kv": (rule(), rule(select=Select(layers=LayerRange(start=0, stop=2))))}, "kv.1.cache"),
    "groups": ({"kv": (rule(format="q4"),)}, "kv.0.format"),
    "stops": ({"kv": (rule(path="pin-on-transfer"),)}, "kv.0.path"),
    "no such memory": ({"kv": (rule(cache=rule().cache.model_copy(update={"memory": "hbm"})),)}, "kv"),
    "its own home": ({"kv": (rule(memory="vram"),)}, "kv.0.cache.memory"),
    "two windows": (
        {
            "kv": (
                rule(select=Select(layers={"start": 0, "stop": 1})),
                rule(cache=rule().cache.model_copy(update={"window_tokens": 128})),
            )
        },
        "kv",
    ),
    "elsewhere": ({"compute": (ComputeRule(select=Select(), device="cpu"),)}, "kv.0.cache.memory"),
    "divided": ({"schedule": Schedule(overlap="next-layer", prefetch=1, attention="divided")}, "schedule.attention"),
    "not ahead": ({"schedule": Schedule()}, "schedule.overlap"),
}


@together("name", FAULTS)
def test_windows_that_cannot_be_are_refused(name: str) -> None:
    changes, field = FAULTS[name]
    with pytest.raises(BadInputError) as refused:
        accept(plan(**changes))
    assert refused.value.field == field


def test_home_and_device_both_count() -> None:
    uses = {use.memory: use for use in memory_use(plan(2, workload=WORK))}
    whole = {use.memory: use for use in memory_use(make_plan(MODEL, 2, workload=WORK))}
    token = 2 * MODEL.dense.kv_width * 4
    assert uses["dram"].kv == token * (200 + 2 * 224), "a block of the host's, two at home in whole pages"
    assert uses["vram"].kv == token * 2 * 96
    chunks = whole["vram"].buffers - uses["vram"].buffers + 2 * 32 * token
    assert 0 < chunks < whole["vram"].buffers, "two pages more, and prompts in passes of 20 tokens less"


def test_a_prompt_s_passes_add_up() -> None:
    costs = CostModel(plan().hardware)
    found = predict(plan(), costs)
    every = [pass_seconds(lower(plan(), it), costs) for it in passes_of(plan()).prompt]
    assert len(every) == 9 and found.prefill.seconds.mid == pytest.approx(sum(every), rel=1e-12)
    assert found.ttft.seconds == found.prefill.seconds and found.prefill.context == 180
    work = [term for term in found.prefill.terms if term.op not in (HANDOVER, JOIN, SUBMISSION)]
    assert sum(term.tasks for term in work) == sum(len(lower(plan(), it).tasks) for it in passes_of(plan()).prompt)
    assert simulate(plan(), lambda task: costs.price(task).mid, costs.between()).ttft == pytest.approx(
        sum(every), rel=1e-9
    )


def test_of_many_passes_some_are_enough() -> None:
    for seed in range(3):
        random = Random(seed)
        work = Workload(prompt_tokens=random.randint(500, 900), output_tokens=8, context=1000)
        shape = {"window": 32 * random.randint(2, 6), "mark": random.uniform(0.5, 0.9)}
        hardware = make_hardware(bandwidth=random.choice((1e8, 1e9, 1e10)))
        paged = make_paged_plan(MODEL, random.randrange(3), workload=work, hardware=hardware, **shape)
        passes, costs = passes_of(paged), CostModel(paged.hardware)
        looked = weighted_passes(paged, passes)
        assert sum(weight for _, weight in looked) == pytest.approx(len(passes.prompt))
        seconds = {it.index: pass_seconds(lower(paged, it), costs) for it in passes.prompt}
        found = sum(weight * seconds[it.index] for it, weight in looked)
        assert found == pytest.approx(sum(seconds.values()), rel=0.01)


def split(
    layers: int = 6, vram: int = GIB, window: Window | None = None, work: Workload = WORK, **changes: Any
) -> LayerSplit:
    model, hardware = MODEL.with_layers(layers), make_hardware(vram=vram)
    options = SplitQuestion(weights="f32", kv="f32", window=window, **changes)
    return LayerSplit(model, roles(hardware), work, options, CostModel(hardware))


def test_splits_with_a_window_are_priced_as_they_are_lowered() -> None:
    for objective in ("latency", "throughput"):
        found = split(12, window=Window(96, 32), objective=objective)
        for k in (0, 1, 5, 12, 13, 14):
            placement = found.placement(k)
            passes = [(mean_step(WORK), WORK.decode_steps if objective == "throughput" else 1)]
            passes += [(it, 1) for it in passes_of(placement).prompt] if objective == "throughput" else []
            exact = sum(count * pass_seconds(lower(placement, it), found.costs) for it, count in passes)
            assert found.objective(k) == pytest.approx(exact, rel=0.02), k
            assert dict(found.shortage(k)) == shortages(memory_use(placement))


def test_auto_takes_the_largest_window_that_fits() -> None:
    work = WORK.model_copy(update={"prompt_tokens": 900, "context": 1000})
    roomy = split(window=Window(None, 32), work=work).placement(0).kv[-1].cache
    assert roomy is not None and roomy.high >= 1000 > roomy.high - 32, "no page ever leaves, and none is wasted"
    tight = split(vram=5 << 20, window=Window(None, 32), work=work)
    placement = tight.placement(0)
    cache = placement.kv[-1].cache
    assert cache is not None and 96 < cache.window_tokens < 1000 and not tight.shortage(0)
    larger = replace(tight, options=replace(tight.options, window=Window(cache.window_tokens + 32, 32)))
    assert larger.shortage(0)


def test_a_refusal_for_the_context_tells_of_windows() -> None:
    work = Workload(prompt_tokens=5900, output_tokens=20, context=6000, batch=2)
    hardware = make_hardware(ram=30_000_000, vram=12_000_000)
    tight = replace(split(work=work), roles=roles(hardware), costs=CostModel(hardware))
    tight = replace(tight, model=tight.model.model_copy(update={"max_context": 8192}))
    with pytest.raises(InfeasibleError, match="`kv_window` auto"):
        decide(tight, {})
    windowed = replace(tight, options=replace(tight.options, window=Window()))
    decision = decide(windowed, {"kv_window": "auto"})
    assert accept(decision.plan).kv[-1].cache is not None


def test_links_both_ways_join_home_and_window() -> None:
    hardware = make_hardware()
    one_way = hardware.model_copy(update={"links": hardware.links[:1]})
    alone = make_plan(MODEL, 0, workload=WORK, hardware=one_way)
    with pytest.raises(BadInputError, match="no link from vram to dram"):
        accept(with_window(alone, page_tokens=32, window_tokens=96))


def test_attention_in_chunks_keeps_no_more_than_it_reads() -> None:
    """Nobody here runs it: what is planned is what its engines keep, wherever the cache is."""
    model, context = load_model("Llama-4-Scout-17B-16E-Instruct"), 131072
    machine = compose("H100 SXM", "AMD EPYC 9354", 512 * GIB, None)
    question = {"model": model, "hardware": machine, "format": "q4_k_m", "context": context, "strategy": "layer-split"}
    made = planned(question).plan
    sizes = [whole_cache_bytes(model, made.workload, "f16", layer) for layer in range(model.layers)]
    assert max(sizes) == 16 * min(sizes) and sizes.count(max(sizes)) == model.layers // 4
    assert caches_by_memory(made)["vram"] == sum(sizes) and not shortages(memory_use(made))
