"""What offloading needs in memories: room to expand resident groups, halves, rows of tables, copies of tied heads."""

from dataclasses import replace

import pytest
from plans import make_hardware
from shapes import small_model
from splits import make_frame

from helmsman.lowering.buffers import kept_bytes
from helmsman.lowering.lower import lower
from helmsman.lowering.ops import FFN_OPS
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors
from helmsman.planner.memory.buffers import staging_bytes
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.offload.allocation import Percentages
from helmsman.planner.strategies.offload.place import Keeping, place
from helmsman.planner.strategies.percentages import FlexGenPercentages
from helmsman.planner.strategies.weights_on_host import WeightsOnHost
from helmsman.scheduler.iteration import decode, prefill
from helmsman.schemas.model import Model
from helmsman.schemas.predicted import MemoryUse
from helmsman.schemas.workload import Workload

WORK = Workload(prompt_tokens=8, output_tokens=9, context=32, batch=2)
RESIDENT = FlexGenPercentages(Percentages(0, 0, 100))


def placement(model: Model, allocator=None, work: Workload = WORK, **keeping):
    found = allocator or WeightsOnHost()
    return place(make_frame(model, work, make_hardware()), found.tiers(model), Keeping("dram", **keeping))


def use(placed, memory: str) -> MemoryUse:
    return next(each for each in memory_use(placed) if each.memory == memory)


def halves(model: Model) -> tuple[int, int]:
    """f32 bytes of attention's tensors, and of the FFN's."""
    block = block_tensors(model, 0)
    ffn = sum(tensor.size("f32") for tensor in block if tensor.op in FFN_OPS)
    return sum(tensor.size("f32") for tensor in block) - ffn, ffn


@pytest.mark.parametrize("family", ["opt", "qwen3"])
def test_two_sets_hold_the_larger_half(family):
    """Or the output, where it is larger."""
    model = small_model(family)
    output = sum(tensor.size("f32") for tensor in output_tensors(model))
    assert staging_bytes(placement(model), "vram") == 2 * max(*halves(model), output)
    whole = placement(model)
    whole = replace(whole, schedule=whole.schedule.model_copy(update={"stage": "block"}))
    assert staging_bytes(whole, "vram") == 2 * max(sum(halves(model)), output)


def test_a_barrier_waits_for_a_whole_stage_without_overlap():
    model = small_model("opt")
    placed = placement(model)
    alone = placed.schedule.model_copy(update={"overlap": "none", "prefetch": 0})
    assert staging_bytes(replace(placed, schedule=alone), "vram") == staging_bytes(placed, "vram") // 2


def test_resident_groups_are_expanded_before_they_are_used():
    model = small_model("llama")
    matrices = [tensor for tensor in block_tensors(model, 0) if len(tensor.shape) > 1]
    head = next(tensor for tensor in output_tensors(model) if tensor.op == "head")
    ffn = sum(tensor.size("f32") for tensor in matrices if tensor.op in FFN_OPS)
    assert staging_bytes(placement(model, RESIDENT), "vram") == 0
    assert staging_bytes(placement(model, RESIDENT, compress=True), "vram") == 2 * max(ffn, head.size("f32"))
    streamed = staging_bytes(placement(model, compress=True), "vram")
    coming = [tensor for tensor in block_tensors(model, 0) if tensor.op in FFN_OPS]
    groups = sum(tensor.size("q4" if len(tensor.shape) > 1 else "f32") for tensor in coming)
    output = head.size("f32") + head.size("q4") + 4 * model.hidden
    assert streamed == 2 * max(ffn + groups, output)


def test_a_tied_head_in_another_format_is_a_copy():
    model = small_model("qwen3")
    table = embedding_tensors(model)[0]
    plain, packed = (use(placement(model, compress=compress), "dram").weights for compress in (False, True))
    blocks = [tensor for layer in range(3) for tensor in block_tensors(model, layer)]
    norms = model.hidden * 4
    matrices = [tensor for tensor in blocks if len(tensor.shape) > 1]
    vectors = sum(tensor.size("f32") for tensor in blocks if len(tensor.shape) == 1)
    assert plain == table.size("f32") + sum(tensor.size("f32") for tensor in blocks) + norms
    expected = table.size("f32") + table.size("q4") + sum(tensor.size("q4") for tensor in matrices)
    assert packed == expected + vectors + norms


def test_a_memory_without_work_keeps_vectors_as_they_are_read():
    model = small_model("opt")
    assert use(placement(model), "dram").buffers == kept_bytes(model, WORK)
    assert use(placement(model, RESIDENT), "dram").buffers == 0


@pytest.mark.parametrize("batches", [1, 3])
def test_rows_of_tables_come_once_for_all_batches(batches):
    """And the chosen tokens go back to the host, which looks them up."""
    model, work = small_model("opt"), WORK.model_copy(update={"batches": batches})
    placed = placement(model, work=work)
    for iteration in (prefill(work, batches), decode(work, 1, batches)):
        tasks = lower(placed, iteration).tasks
        (rows,) = [task for task in tasks if task.op == "embedding.weights"]
        assert rows.bytes == 2 * 4 * batches * 2 * iteration.tokens * model.hidden
        looked_up = [task for task in tasks if task.op == "embedding"]
        assert [task.bytes for task in looked_up] == [rows.bytes // batches] * batches
        tokens = [task for task in tasks if task.op == "token"]
        assert [(task.memories, task.batch) for task in tokens] == [(("vram", "dram"), n) for n in range(batches)]
    assert not any(task.op == "token" for task in lower(placement(model, RESIDENT), prefill(WORK)).tasks)
