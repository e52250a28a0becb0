"""Workload variants of section 2.2 as plans: bytes and FLOPs of lowered graphs, and which way time goes (PARK-70)."""

from dataclasses import replace
from functools import cache
from math import ceil

import pytest
from daily import one_in
from plans import make_hardware
from shapes import small_model
from splits import make_frame

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import TaskGraph
from helmsman.lowering.lower import lower
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.op_split.variants import with_cache_use
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.schemas.cache_use import CacheUse
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import rows_size, size_of
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document
from helmsman.schemas.workload import Workload
from helmsman.simulator.pricing import median_price
from helmsman.simulator.replay import replay

WORK = Workload(prompt_tokens=200, output_tokens=56, batch=8, context=256)
PAST = mean_step(WORK).past
LLAMA = load_model("Llama-2-7b-hf").with_layers(6)
SHAPES = {
    "mha": LLAMA,
    "gqa": reshaped(LLAMA, kv_heads=8),
    "mqa": reshaped(LLAMA, kv_heads=1),
}


def asked(model: Model, cache: CacheUse | None = None, fused: bool = False, kv: str = "f16", **options) -> OpSplit:
    """A question without operation tables: every price is a roofline's."""
    hardware = load_hardware("a4000-7950x", None).model_copy(update={"tables": ()})
    frame = Frame(model, roles(hardware), WORK, "f16", kv, cache=cache or CacheUse(), fused=fused)
    return OpSplit(with_cache_use(frame), SplitRules(**options), CostOptions())


@cache
def streaming(model: Model, **changes) -> tuple[Plan, TaskGraph, float]:
    """The plan that streams everything, its mean step and the seconds that the simulator needs for that."""
    plan = accept(asked(model, offload=False, **changes).decide({}).plan)
    graph = lower(plan, mean_step(WORK))
    return plan, graph, replay(graph, median_price(plan), plan.hardware).makespan


def moved(graph: TaskGraph, *ops: str) -> int:
    """Bytes that transfers of these names bring to the accelerator in one step."""
    return sum(task.bytes for task in graph.tasks if task.kind == "transfer" and task.op in ops and "h2d" in task.id)


def cached(graph: TaskGraph) -> int:
    return moved(graph, "keys", "values", "kv")


@pytest.mark.parametrize("shape", SHAPES)
def test_fewer_kv_heads_move_proportionally_less(shape):
    """MQA, GQA: the cache shrinks with the KV heads; every head of it is moved once per step."""
    model = SHAPES[shape]
    plan, graph, seconds = streaming(model)
    assert cached(graph) == model.layers * size_of(2 * WORK.batch * PAST * model.dense.kv_width, "f16")
    assert {use.memory: use.kv for use in plan.predicted.memory}["dram"] == model.layers * size_of(
        2 * WORK.batch * WORK.context * model.dense.kv_width, "f16"
    )
    assert seconds == pytest.approx(plan.predicted.decode.seconds.mid, rel=0.02)
    if shape != "mha":
        assert seconds < streaming(SHAPES["mha"])[2]


def test_every_kv_head_can_be_a_chunk():
    """PARK-19: splits inside attention follow KV heads, of which MQA has one."""
    for shape, heads in (("mha", 32), ("gqa", 8), ("mqa", 1)):
        units = asked(SHAPES[shape], chunks={"scores": heads}).units
        assert sum(unit.op == "scores" for unit in units) == heads


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_attention_moves_the_same_and_is_not_slower(shape):
    """FlashAttention: no scores, softmax and weighted values; the cache comes in one transfer."""
    _, divided, slow = streaming(SHAPES[shape])
    plan, fused, fast = streaming(SHAPES[shape], fused=True)
    assert {task.kind for task in fused.tasks} & {"scores", "softmax", "wv"} == set()
    assert sum(task.kind == "attention" for task in fused.tasks) == plan.model.layers
    assert cached(fused) == cached(divided)
    assert fast <= slow
    assert sum(unit.op == "attention" for unit in asked(SHAPES[shape], fused=True).units) == 1


def test_fused_attention_takes_the_three_rows_of_a_table():
    """A table of divided attention prices it by their sum: what fusing saves was not measured."""
    machine, work = (
        roles(load_hardware("a4000-7950x", None)),
        Workload(prompt_tokens=512, output_tokens=32, batch=50, context=544),
    )
    found = []
    for fused in (False, True):
        question = OpSplit(Frame(load_model("opt-30b"), machine, work, fused=fused), SplitRules(), CostOptions())
        table = question.table
        found.append([sum(getattr(table, column)) for column in ("host", "accelerator", "cache")])
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_four_bit_weights_and_caches():
    """Quantisation: 0.28125 of the bytes, and an expansion for each transfer."""
    _, plain, slow = streaming(LLAMA)
    names = tuple(f"{op}.weights" for op in ("q", "k", "v", "o", "gate", "up", "down"))
    for compress, weights_q4, cache_q4 in (("weights", True, False), ("kv", False, True), ("all", True, True)):
        _, graph, fast = streaming(LLAMA, compress=compress)
        weights, cache = (0.28125 if packed else 1.0 for packed in (weights_q4, cache_q4))
        assert moved(graph, *names) == weights * moved(plain, *names)
        assert cached(graph) == cache * cached(plain)
        rows = 2 * WORK.batch * PAST * LLAMA.dense.kv_heads * LLAMA.layers
        assert not cache_q4 or cached(graph) == rows_size(rows, LLAMA.dense.head_dim, "q4")
        expanded = {task.op for task in graph.tasks if task.kind == "decompress"}
        assert {f"{name}.decompress" for name in names} <= expanded or not weights_q4
        assert ("keys.decompress" in expanded) == cache_q4
        assert fast < slow or compress == "kv"


def test_wider_formats_move_twice_as_much():
    _, half, fast = streaming(LLAMA)
    _, full, slow = streaming(LLAMA, kv="f32")
    assert cached(full) == 2 * cached(half)
    assert slow > fast


@pytest.mark.parametrize(
    ("fused", "keep"),
    one_in(
        2,
        [
            pytest.param(fused, keep, marks=() if (place + fused) % 2 == 0 else pytest.mark.nightly)
            for place, keep in enumerate((0.05, 0.25, 1 / 3, 0.999))
            for fused in (False, True)
        ],
    ),
)
def test_a_window_of_heavy_hitters_and_recent_tokens(keep, fused):
    """H2O: a fixed share of the past, known without a choice; the step's own token is always seen."""
    use = CacheUse(keep=keep)
    plan, graph, seconds = streaming(LLAMA, cache=use, fused=fused)
    _, plain, slow = streaming(LLAMA, fused=fused)
    left = ceil(keep * PAST)
    assert cached(graph) * PAST == cached(plain) * left
    read = sum(task.bytes for task in graph.tasks if task.kind in ("scores", "wv", "attention"))
    whole = sum(task.bytes for task in plain.tasks if task.kind in ("scores", "wv", "attention"))
    assert read * (PAST + 1) == whole * (left + 1)
    assert seconds < slow if left < PAST else seconds == slow
    assert [use.kv for use in plan.predicted.memory] == [
        use.kv for use in streaming(LLAMA, fused=fused)[0].predicted.memory
    ]


def test_choosing_tokens_costs_partial_scores():
    """InfiniGen: a share of all keys is read and as large a share of the score FLOPs done, where scores run."""
    _, window, _ = streaming(LLAMA, cache=CacheUse(keep=0.25))
    _, plain, _ = streaming(LLAMA)
    _, chosen, _ = streaming(LLAMA, cache=CacheUse(keep=0.25, select=0.5))
    for name in ("bytes", "flops"):
        mine, known, whole = (
            sum(getattr(task, name) for task in graph.tasks if task.kind == "scores")
            for graph in (chosen, window, plain)
        )
        assert mine - known == pytest.approx(0.5 * whole * PAST / (PAST + 1), rel=1e-6)
    assert cached(chosen) == cached(window)
    assert [t.bytes for t in chosen.tasks if t.kind == "wv"] == [t.bytes for t in window.tasks if t.kind == "wv"]


def test_selection_follows_chunks_and_batches():
    """Parts of divided scores choose for their heads; every batch of a zig-zag pass brings its own tokens."""
    model = SHAPES["gqa"]
    question = asked(model, cache=CacheUse(keep=0.25, select=0.5), chunks={"scores": 4, "wv": 4})
    frame = replace(question.frame, workload=WORK.model_copy(update={"batches": 2}))
    units = question.units
    cut = next(i for i, unit in enumerate(units) if unit.op == "scores") + 2
    whole = lower(place(frame, Layout(units, 0, len(units))), mean_step(WORK, 2))
    parted = lower(place(frame, Layout(units, cut, len(units))), mean_step(WORK, 2))
    for name in ("bytes", "flops"):
        totals = [sum(getattr(t, name) for t in graph.tasks if t.kind == "scores") for graph in (whole, parted)]
        assert totals[0] == pytest.approx(totals[1], rel=1e-9)
    assert moved(parted, "keys") * 4 == moved(whole, "keys") * 2
    assert moved(whole, "keys") == 2 * model.layers * size_of(
        WORK.batch * ceil(0.25 * PAST) * model.dense.kv_width, "f16"
    )


def test_prompts_are_whole():
    """PARK-72: only generation changes; cached activations are what a prompt writes."""
    model, use = small_model("opt"), CacheUse(keep=0.5, select=0.5)
    frame = make_frame(model, hardware=make_hardware())
    layout = Layout(frame.units({}), 0, 11)
    first = replace(mean_step(frame.workload), phase="prefill", tokens=8, context=8, index=0)
    assert lower(place(replace(frame, cache=use), layout), first) == lower(place(frame, layout), first)


def test_cached_activations_as_tasks():
    """Reordered: q, k, attention, v; X is moved once, half of K and V, in one transfer; writing it is halved too."""
    model = small_model("opt")
    plain = make_frame(model, hardware=make_hardware(), fused=True)
    frame = replace(plain, cache=CacheUse(holds="activations"))
    units = frame.units({})
    assert [unit.op for unit in units][:6] == ["norm1", "q", "k", "attention", "v", "o"]
    graph = lower(place(frame, Layout(units, 0, len(units))), mean_step(frame.workload))
    other = lower(place(plain, Layout(plain.units({}), 0, len(units))), mean_step(frame.workload))
    for direction in ("h2d", "d2h"):
        sizes = [
            sum(t.bytes for t in g.tasks if t.kind == "transfer" and t.op == "kv" and t.resource == direction)
            for g in (graph, other)
        ]
        assert sizes[0] * 2 == sizes[1] > 0
    of = {
        task.op: (place, task) for place, task in enumerate(graph.tasks) if task.layer == 1 and "weights" not in task.op
    }
    past, own = mean_step(frame.workload).past, 1
    attention = of["attention"][1]
    assert attention.bytes == size_of((past + own) * model.hidden, "f32")
    assert attention.flops == 4 * model.dense.heads * model.hidden * (past + own)
    for before, after in (("q", "k"), ("k", "attention"), ("append", "attention"), ("attention", "v"), ("v", "o")):
        assert of[before][0] in of[after][1].deps
    assert of["q"][0] not in of["append"][1].deps


def test_divided_attention_has_no_place_for_cached_activations():
    model = load_model("opt-6.7b").with_layers(3)
    plan = asked(model, cache=CacheUse(holds="activations")).decide({}).plan
    document = plan.to_json().replace('"attention": "whole"', '"attention": "divided"')
    with pytest.raises(BadInputError, match="undivided"):
        parse_document(Plan, document.encode(), "plan")
