"""Quantised weights and caches in plans: their bytes, what fits, what is refused, what goes with which model."""

from dataclasses import replace

import pytest
from plans import make_plan
from questions import asked
from shapes import small_model
from splits import WORK, make_frame, split_placement
from together import together

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.planner.checks.accept import accept
from helmsman.planner.checks.format_check import cache_misfit, weights_misfit
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.scheduler.iteration import decode
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import STORED_FORMATS
from helmsman.schemas.plan import Residence, Select
from helmsman.schemas.predicted import MemoryUse
from helmsman.schemas.workload import Workload

MATRICES = {"Qwen3-8B": 8_190_427_136, "Qwen3-0.6B": 595_984_384, "Meta-Llama-3-8B": 8_029_995_008}
"""Values of matrices, a tied table once: for Qwen3-8B 36 x (2 x 4096^2 + 2 x 1024 x 4096 + 3 x 12288 x 4096) and twice
151936 x 4096; and so on."""
VECTORS = {"Qwen3-8B": 308_224, "Qwen3-0.6B": 65_536, "Meta-Llama-3-8B": 266_240}
BITS = {"q8_0": 8.5, "q4_0": 4.5, "q4_k": 4.5, "q6_k": 6.5625, "q8": 8.5, "q4": 4.5}
SMALL = reshaped(small_model("qwen3"), hidden=256, head_dim=64, ffn=512)


def split(model, fmt, kv="f16", machine="rtx4060-laptop"):
    hardware = load_hardware(machine, None)
    options = SplitQuestion(fmt, kv)
    return LayerSplit(model, roles(hardware), Workload(), options, CostModel(hardware))


@together("fmt", BITS)
@together("name", MATRICES)
def test_bytes_of_published_models(name, fmt):
    model = load_model(name)
    used = {use.memory: use for use in memory_use(split(model, fmt).placement(0))}
    assert used["vram"].weights == MATRICES[name] * BITS[fmt] / 8 + 4 * VECTORS[name]
    assert used["dram"].weights == 0


def test_four_bits_bring_eight_billion_parameters_into_eight_gigabytes():
    model = load_model("Qwen3-8B")
    lacking = {fmt: dict(split(model, fmt).shortage(0)) for fmt in ("f16", "q8_0", "q6_k", "q4_k", "q4_0")}
    assert {fmt for fmt, found in lacking.items() if not found} == {"q6_k", "q4_k", "q4_0"}
    assert lacking["f16"]["vram"] > lacking["q8_0"]["vram"] > 0


def test_caches_of_eight_bits():
    model = load_model("Qwen3-8B")
    kept = {kv: {u.memory: u.kv for u in memory_use(split(model, "q4_0", kv).placement(0))} for kv in ("f16", "q8_0")}
    assert kept["f16"]["vram"] == 36 * 2 * 256 * 1024 * 2
    assert kept["q8_0"]["vram"] == 36 * 2 * 256 * 1024 * 34 // 32


@pytest.mark.parametrize(("context", "values"), [(32768, 1 << 22), (1000, 1024 * 1000)])
@pytest.mark.parametrize("k", [0, 20])
def test_a_gpu_with_caches_of_eight_bits_has_room_to_expand_a_part_of_them(k, context, values):
    """f32 keys and values, of 2^22 values at most: what is short of that by a byte does not fit."""
    found = split(load_model("Qwen3-8B"), "f16", "q8_0")
    found = replace(found, workload=Workload(prompt_tokens=512, output_tokens=1, context=context))
    buffers = {kv: used(replace(found, options=SplitQuestion("f16", kv)), k).buffers for kv in ("q8_0", "f16")}
    assert buffers["q8_0"] - buffers["f16"] == 2 * 4 * values
    needed = used(found, k).used
    lacking = [dict(with_vram(found, size).shortage(k)).get("vram", 0) for size in (needed, needed - 1)]
    assert lacking == [0, 1]


def used(found: LayerSplit, k: int) -> MemoryUse:
    """Of the GPU."""
    return next(use for use in memory_use(found.placement(k)) if use.memory == "vram")


def with_vram(found: LayerSplit, size: int) -> LayerSplit:
    """The same with so much memory on the GPU."""
    hardware = found.roles.hardware
    resized = [m.model_copy(update={"available": size}) if m.name == "vram" else m for m in hardware.memories]
    return replace(found, roles=roles(hardware.model_copy(update={"memories": tuple(resized)})))


@pytest.mark.parametrize("k", [0, 4, 38])
@pytest.mark.parametrize("fmt", ["q4_0", "q6_k", "q4"])
def test_the_closed_form_of_a_split_holds_in_every_format(fmt, k):
    found = split(load_model("Qwen3-8B"), fmt, "q8_0")
    predicted = found.predicted(k).decode.seconds.mid
    assert found.seconds(k, mean_step(found.workload)) == pytest.approx(predicted, rel=1e-9)


@pytest.mark.parametrize("fmt", [fmt for fmt in STORED_FORMATS if fmt not in ("f32", "f16", "bf16")])
def test_what_is_streamed_is_multiplied_as_it_is_stored(fmt):
    question = asked("Qwen3-0.6B", layers=2)
    schedule = FlexGen(replace(question.frame, weights=fmt), False, False, CostOptions())
    tasks = lower(schedule.placement, mean_step(question.frame.workload)).tasks
    assert not [task for task in tasks if task.kind == "decompress"]
    moved = {task.op: task for task in tasks if task.kind == "transfer" and task.layer == 1}
    size = 3072 * 1024 * BITS[fmt] / 8
    assert (moved["up.weights"].bytes, moved["up.weights"].format) == (size, fmt)
    work = {task.op: task for task in tasks if task.layer == 1 and task.kind == "linear"}
    assert (work["up"].bytes, work["up"].format) == (size, fmt)
    norms = [task for task in tasks if task.kind == "norm" and task.layer == 1]
    assert all(task.bytes == 4 * 1024 and task.format == "f32" for task in norms) and len(norms) == 2


def test_groups_are_expanded_only_where_a_rule_says_so():
    """`q4` with `expanded` becomes that, in place too; without it is multiplied as it is."""
    plan = make_plan(SMALL, workload=WORK)
    for expanded in (None, "f16"):
        rule = Residence(select=Select(), memory="dram", format="q4", expanded=expanded)
        placed = accept(plan.model_copy(update={"residence": (rule,)}))
        graph = lower(placed, decode(WORK, 3))
        used = {task.op: task.format for task in graph.tasks if task.kind == "linear"}
        assert set(used.values()) == {expanded or "q4"}
        assert bool([task for task in graph.tasks if task.kind == "decompress"]) == (expanded is not None)
        lookups = [task for task in graph.tasks if task.kind == "lookup"]
        assert [(task.format, task.bytes) for task in lookups] == [("q4", 256 // 64 * 36)]


def test_quantised_weights_are_not_compressed_again():
    frame = replace(make_frame(SMALL), weights="q4_0")
    with pytest.raises(UsageError, match="4-bit groups are expanded to f32, f16 or bf16, and `format` is q4_0"):
        split_placement(SMALL, 0, 3, frame=frame, weights_q4=True)


@pytest.mark.parametrize(
    ("name", "fmt", "said"),
    [
        ("Qwen2.5-0.5B", "q4_k", ("embedding.weight has 896 columns, and blocks of q4_k are of 256", "q4_0")),
        ("Qwen2.5-0.5B", "q6_k", ("embedding.weight has 896 columns, and blocks of q6_k are of 256", "q8_0")),
        ("Qwen2.5-0.5B", "q8_0", None),
        ("Qwen3-8B", "q6_k", None),
    ],
)
def test_columns_that_are_not_whole_blocks_are_refused(name, fmt, said):
    assert weights_misfit(load_model(name), fmt) == said


def test_a_format_that_fits_is_named():
    model, down = small_model("qwen3"), "down.weight of block 0 has 200 columns"
    assert weights_misfit(model, "q4_0") == (f"{down}, and blocks of q4_0 are of 32", "q4")
    assert cache_misfit(model, "q8_0") == ("heads of small-qwen3 have 24 values, q8_0 has groups of 32", "f16")
    assert weights_misfit(model, "q4") is None and cache_misfit(model, "f16") is None


def test_plans_whose_columns_are_not_whole_blocks_are_refused():
    plan = make_plan(small_model("opt"), workload=WORK)
    rule = plan.residence[-1].model_copy(update={"format": "q8_0"})
    with pytest.raises(BadInputError, match="down.weight of block 0 has 200 columns") as caught:
        accept(plan.model_copy(update={"residence": (rule,)}))
    assert (caught.value.field, caught.value.value) == ("residence.0.format", "q8_0")
    cache = plan.kv[-1].model_copy(update={"format": "q8_0"})
    with pytest.raises(BadInputError, match="groups of 32") as caught:
        accept(plan.model_copy(update={"kv": (cache,)}))
    assert caught.value.field == "kv.0.format"
