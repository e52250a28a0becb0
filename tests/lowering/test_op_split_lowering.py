"""Operation splits as tasks: every byte and FLOP once, the right transfers in the right order (PARK-11..21, 34..40)."""

from collections import Counter
from dataclasses import replace

import pytest
from plans import make_hardware
from shapes import small_model
from splits import WORK, make_frame, split_placement, with_storage

from helmsman.lowering.lower import lower
from helmsman.lowering.operation import DIVIDED
from helmsman.lowering.rules import homes, kv_homes, places
from helmsman.lowering.streams import hops
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.scheduler.iteration import decode, prefill
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import size_of
from helmsman.schemas.plan import ComputeRule, Part, Select

STEP = decode(WORK, 3)


@pytest.fixture(params=["qwen3", "opt"])
def model(request):
    return small_model(request.param)


def sums(graph, *fields):
    """What the operations of blocks add up to, by operation."""
    totals: dict[tuple[int | None, str], list[int]] = {}
    for task in graph.tasks:
        if task.layer is not None and task.kind not in ("transfer", "decompress"):
            entry = totals.setdefault((task.layer, task.op), [0] * len(fields))
            for place, name in enumerate(fields):
                entry[place] += getattr(task, name)
    return totals


def test_every_cut_does_the_same_work(model):
    whole = sums(lower(split_placement(model, 0, 0), STEP), "bytes", "flops")
    units = len(pieces(model, {}))
    for start in range(units + 1):
        for stop in range(start, units + 1):
            graph = lower(split_placement(model, start, stop), STEP)
            assert sums(graph, "bytes", "flops") == whole
            check_order(graph)


def check_order(graph):
    ids = Counter(task.id for task in graph.tasks)
    assert max(ids.values()) == 1
    for index, task in enumerate(graph.tasks):
        assert all(dep < index for dep in task.deps)


def test_chunks_do_the_same_work(model):
    chunks = {"q": 2, "scores": model.dense.kv_heads, "wv": model.dense.kv_heads, "o": 3, "up": 2, "down": 3}
    whole = sums(lower(split_placement(model, 0, 0), STEP), "flops", "bytes")
    units = len(pieces(model, chunks))
    for start in range(0, units, 2):
        for stop in range(start, units + 1, 3):
            graph = lower(split_placement(model, start, stop, chunks), STEP)
            check_order(graph)
            found = sums(graph, "flops", "bytes")
            assert found.keys() == whole.keys()
            for key, (flops, size) in found.items():
                assert abs(flops - whole[key][0]) <= 1
                assert size == whole[key][1]


def test_a_divided_attention_is_the_whole_one(model):
    """Same bytes; the softmax's FLOPs are counted only where it is an operation of its own."""
    plan = split_placement(model, 0, 0)
    schedule = plan.schedule.model_copy(update={"attention": "whole"})
    fused = sums(lower(replace(plan, schedule=schedule), STEP), "bytes", "flops")
    parts = sums(lower(plan, STEP), "bytes", "flops")
    assert fused[0, "attention"][0] == sum(parts[0, op][0] for op in DIVIDED)
    assert fused[0, "attention"][1] == parts[0, "scores"][1] + parts[0, "wv"][1]


def transfers(graph, layer=0):
    return {task.op: task for task in graph.tasks if task.kind == "transfer" and task.layer == layer}


def test_a_prefix_split_streams_only_what_the_accelerator_uses(model):
    """CPU LN.0..V, accelerator from Scores on: no Q, K, V weights move, the caches and the rest do (PARK-12, 16)."""
    graph = lower(split_placement(model, 4, len(pieces(model, {}))), STEP)
    moved = transfers(graph, layer=1)
    assert {"keys", "values", "o.weights", "up.weights", "down.weights", "new_kv"} <= moved.keys()
    assert not {"q.weights", "k.weights", "v.weights"} & moved.keys()
    past = size_of(STEP.batch * STEP.past * model.dense.kv_width, "f32")
    assert moved["keys"].bytes == moved["values"].bytes == past
    assert moved["new_kv"].bytes == size_of(2 * STEP.batch * model.dense.kv_width, "f32")
    assert moved["down.weights"].bytes == size_of(model.dense.ffn * model.hidden, "f32")


def test_the_next_layer_comes_while_this_one_computes(model):
    """Double buffering: layer l's transfers wait for the work on layer l - 2, and for nothing later (PARK-04)."""
    graph = lower(split_placement(model, 4, len(pieces(model, {}))), STEP)
    for task in graph.tasks:
        if task.kind == "transfer" and task.op in ("keys", "values", "down.weights"):
            before = [graph.tasks[dep] for dep in task.deps]
            users = [t for t in before if t.resource == "loopback"]
            assert {t.layer for t in users} == ({task.layer - 2} if task.layer >= 2 else set())
            assert all(t.resource == "h2d" for t in before if t not in users)  # in order behind the one before


def test_activations_pass_by_the_weights(model):
    graph = lower(split_placement(model, 4, len(pieces(model, {}))), STEP)
    lanes = {task.op: task.resource for task in graph.tasks if task.kind == "transfer"}
    assert lanes["append"] == lanes["new_kv"] == "h2d:activations"
    assert lanes["keys"] == lanes["down.weights"] == "h2d"


def test_where_the_cache_is_written(model):
    """On the host when V is computed there; else on the accelerator, and sent home (PARK-56)."""
    units = len(pieces(model, {}))
    assert "kv" not in transfers(lower(split_placement(model, 4, units), STEP))
    away = lower(split_placement(model, 0, units), STEP)
    (home,) = [t for t in away.tasks if t.kind == "transfer" and t.op == "kv" and t.layer == 0]
    assert (home.resource, home.bytes) == ("d2h", size_of(2 * STEP.batch * model.dense.kv_width, "f32"))


def test_compressed_weights_are_expanded_on_the_accelerator(model):
    units = len(pieces(model, {}))
    graph = lower(split_placement(model, 0, units, weights_q4=True), STEP)
    tasks = {task.id: (index, task) for index, task in enumerate(graph.tasks)}
    index, arrival = tasks["3/1.up.weights@h2d"]
    at, expanded = tasks["3/1.up.weights.decompress"]
    elements = model.dense.ffn * model.hidden
    assert arrival.bytes == size_of(elements, "q4")
    assert expanded.deps == (index,)
    assert expanded.bytes == size_of(elements, "q4") + size_of(elements, "f32")
    assert expanded.resource == "loopback"  # a GPU has a lane for that
    assert at in tasks["3/1.up"][1].deps


@pytest.mark.parametrize("direct", [True, False])
def test_weights_from_storage(model, direct):
    """Straight to the accelerator, or through host memory; striped over two devices with full copies (PARK-37, 39)."""
    hardware = with_storage(make_hardware(), "nvme0", "nvme1", direct=direct)
    frame = make_frame(model, hardware=hardware)
    graph = lower(
        split_placement(
            model,
            0,
            len(pieces(model, {})),
            frame=frame,
            weights_q4=True,
            stored=("down",),
            storage=("nvme0", "nvme1"),
            stripes=(0.75, 0.25),
            path="direct" if direct else "bounce",
        ),
        STEP,
    )
    down = [t for t in graph.tasks if t.op == "down.weights" and t.layer == 1]
    lanes = [(t.resource, t.bytes) for t in down]
    size = size_of(model.dense.ffn * model.hidden, "f32")
    first = [("s2d-nvme0", size * 3 // 4), ("s2d-nvme1", size // 4)]
    if direct:
        assert lanes == first
    else:
        assert lanes == [first[0], ("h2d", size * 3 // 4), first[1], ("h2d", size // 4)]
    assert not any(t.op == "down.weights.decompress" for t in graph.tasks)
    check_order(graph)


def test_a_bounce_names_the_leg_that_is_missing():
    """There is a link from dram to vram: what is missing is a way through host memory."""
    model = small_model("opt")
    placed = split_placement(model, 0, 1, frame=make_frame(model, hardware=with_storage(make_hardware(), "nvme0")))
    with pytest.raises(BadInputError, match="bounces off dram") as refused:
        hops(placed, "dram", "vram", 100, "bounce")
    assert (refused.value.field, refused.value.value) == ("path", "bounce")
    with pytest.raises(BadInputError, match="no link from memory nvme0 to memory dram"):
        hops(placed, "nvme0", "vram", 100, "bounce")
    (straight,) = hops(placed, "nvme0", "vram", 100, "direct")
    assert straight.link.name == "s2d-nvme0"


def test_pinning_on_the_fly_costs_the_host(model):
    """FlexGen copies each tensor to page-locked memory before it can leave (PARK-07)."""
    graph = lower(split_placement(model, 0, len(pieces(model, {})), pinning="pin-on-transfer"), STEP)
    pins = [task for task in graph.tasks if task.kind == "pin"]
    streamed = [t for t in graph.tasks if t.kind == "transfer" and t.payload in ("weights", "cache")]
    assert {task.resource for task in pins} == {"cpu"}
    assert len(pins) == len(streamed)
    assert sum(task.bytes for task in pins) == 2 * sum(task.bytes for task in streamed)
    for task in streamed:
        assert graph.tasks[task.deps[0]].kind == "pin"


def test_zig_zag_brings_weights_once_and_caches_for_every_batch(model):
    """All batches finish a layer before the next; one batch's cache at a time (PARK-05, 20, 21; E-PARK-04)."""
    work = WORK.model_copy(update={"batch": 2, "batches": 3})
    frame = make_frame(model, work)
    plan = split_placement(model, 4, len(pieces(model, {})), frame=frame)
    graph = lower(plan, decode(work, 3, batches=3))
    check_order(graph)
    moved = Counter(task.op for task in graph.tasks if task.kind == "transfer" and task.layer == 1)
    assert moved["down.weights"] == 1
    assert moved["keys"] == moved["values"] == moved["new_kv"] == 3
    for task in graph.tasks:
        if task.op == "keys" and task.kind == "transfer" and task.batch > 0:
            before = [graph.tasks[dep] for dep in task.deps if graph.tasks[dep].resource != "h2d"]
            assert {(t.batch, t.layer, t.resource) for t in before} == {(task.batch - 1, task.layer, "loopback")}
            assert {t.op for t in before} >= {"scores", "down"}
    one = lower(plan, decode(work, 3, batches=1))
    assert sum(t.flops for t in graph.tasks) == 3 * sum(t.flops for t in one.tasks)


def test_prompts_run_on_the_accelerator(model):
    """Weights in, keys and values out, layer by layer, whatever the split of decode (PARK-54)."""
    graph = lower(split_placement(model, 4, 6), prefill(WORK))
    block = [task for task in graph.tasks if task.layer == 1]
    assert {t.resource for t in block if t.kind not in ("transfer", "decompress")} == {"loopback"}
    names = {t.op for t in block if t.kind == "transfer"}
    assert {"q.weights", "down.weights", "kv"} <= names
    assert not {"keys", "values"} & names  # nothing is cached yet
    (out,) = [t for t in block if t.op == "kv"]
    assert (out.resource, out.bytes) == ("d2h", size_of(2 * WORK.prompt_tokens * model.dense.kv_width, "f32"))


def test_stationary_weights_are_pageable_and_streamed_ones_pinned(model):
    plan = split_placement(model, 4, len(pieces(model, {})))
    paths = {tensor.name: homes(plan, tensor)[0].rule.path for tensor in block_tensors(model, 0)}
    assert paths["q.weight"] == "pageable"
    assert paths["down.weight"] == "pinned"


def test_caches_turned_for_every_step(model):
    """The ablation of PARK-14, 15: a copy of every cache before it is used."""
    frame = make_frame(model, reshape=True)
    graph = lower(split_placement(model, 0, 0, frame=frame), STEP)
    turned = [task for task in graph.tasks if task.kind == "reshape"]
    assert len(turned) == 2 * model.layers
    scores = next(task for task in graph.tasks if task.op == "scores")
    assert graph.tasks[max(scores.deps)].kind == "reshape"
    assert turned[0].bytes * STEP.context == 2 * scores.bytes * STEP.past


def test_rules_cover_every_row_once():
    model = small_model("qwen3")
    rules = (
        ComputeRule(select=Select(names="up", part=Part(axis="rows", start=16, stop=32)), device="b"),
        ComputeRule(select=Select(names="up", part=Part(axis="rows", start=0, stop=24)), device="c"),
        ComputeRule(select=Select(), device="a"),
    )
    plan = replace(split_placement(model, 0, 0), compute=rules)
    found = [(p.rule.device, p.start, p.stop) for p in places(plan, "up", 0, "decode", model.dense.ffn, "rows")]
    assert found == [("c", 0, 16), ("b", 16, 32), ("a", 32, model.dense.ffn)]


@pytest.mark.parametrize(
    ("part", "names", "message"),
    [
        (Part(axis="rows", start=0, stop=1), "scores", "divided by heads"),
        (Part(axis="heads", start=0, stop=1), "up", "divided by rows"),
        (Part(axis="heads", start=0, stop=999), "wv", "heads"),
    ],
)
def test_parts_that_cannot_be(part, names, message):
    model = small_model("qwen3")
    plan = split_placement(model, 0, 0)
    rule = ComputeRule(select=Select(names=names, part=part), device="cpu")
    with pytest.raises(BadInputError, match=message):
        lower(replace(plan, compute=(rule, *plan.compute)), STEP)


def test_divided_caches_have_parts_of_their_own():
    model = small_model("qwen3")
    chunks = {"scores": model.dense.kv_heads}
    plan = split_placement(model, 5, len(pieces(model, chunks)), chunks)
    found = [(p.rule.path, p.start, p.stop) for p in kv_homes(plan, "keys", 0, model.dense.kv_heads)]
    assert found == [("pageable", 0, 1), ("pinned", 1, model.dense.kv_heads)]
    assert [p.rule.path for p in kv_homes(plan, "values", 0, model.dense.kv_heads)] == ["pinned"]


@pytest.mark.parametrize(("op", "count"), [("scores", 3), ("softmax", 2), ("norm1", 2), ("down", 10**5)])
def test_more_chunks_than_heads_or_rows(op, count):
    with pytest.raises(UsageError, match="cannot be divided"):
        pieces(small_model("qwen3"), {op: count})


def test_chunks_are_whole_panels():
    model = small_model("qwen3")
    parts = [unit for unit in pieces(model, {"up": 3}) if unit.op == "up"]
    assert [unit.start % 16 for unit in parts] == [0, 0, 0]
    assert (parts[0].start, parts[-1].stop) == (0, model.dense.ffn)
