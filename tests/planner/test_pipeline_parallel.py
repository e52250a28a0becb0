"""Replicas of several stages of layers: what each holds, what rounds cost, and what is refused."""

from dataclasses import replace

import pytest
from iteration_times import gpu_only_seconds
from served_plans import layer_split

from helmsman.hwdb.compose import compose
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.placement import Placement
from helmsman.lowering.tensors import tensors
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.serving.iteration_cost import replica_cost
from helmsman.planner.serving.pipeline_parallel import elsewhere_bytes, in_rounds, stage_layers
from helmsman.planner.serving.replica import ReplicaOptions, replica_of
from helmsman.scheduler.pass_work import PassWork
from helmsman.schemas.errors import UsageError
from helmsman.schemas.workload import Workload

EIGHT = compose("8x H100 SXM 80GB", "2x Intel Xeon Platinum 8462Y+", 2 * 10**12, None, peer=360e9)
PLAN = layer_split("Llama-3.1-70B", EIGHT)


def _stages(plan: Placement, layers: tuple[int, ...]) -> list[Placement]:
    """A plan of the layers of each stage, for a token."""
    one = replace(plan, workload=Workload(prompt_tokens=1, output_tokens=1, context=2))
    return [replace(one, model=plan.model.with_layers(count)) for count in layers]


def _weights(plan: Placement, layers: tuple[int, ...]) -> list[int]:
    """Bytes of weights of each stage."""
    kept = [sum(use.weights for use in memory_use(stage)) for stage in _stages(plan, layers)]
    return [size - elsewhere_bytes(plan, stage, len(layers)) for stage, size in enumerate(kept)]


def test_layers_are_divided_as_evenly_as_can_be() -> None:
    model = load_model("Llama-3.1-70B")
    assert stage_layers(model, 8) == (10,) * 8
    assert stage_layers(model, 3) == (27, 27, 26)
    with pytest.raises(UsageError, match="a stage without a layer"):
        stage_layers(model, 81)


@pytest.mark.parametrize(("name", "twice"), [("Llama-3.1-8B", False), ("Qwen3-0.6B", True)])
def test_stages_hold_every_weight_once_but_a_table_that_both_ends_share(name: str, twice: bool) -> None:
    plan = layer_split(name, "h100x2-hgx")
    whole = sum(tensor.size("f16") for tensor in tensors(plan.model) if tensor.tied_to is None)
    table = plan.model.vocab * plan.model.hidden * 2
    assert sum(_weights(plan, stage_layers(plan.model, 5))) == whole + twice * table


@pytest.mark.parametrize("stages", [3, 8])
def test_caches_are_as_large_as_the_tightest_stage_has_room_for(stages: int) -> None:
    options = ReplicaOptions(pipeline_parallel=stages)
    replica, limits = replica_of(PLAN, options), replica_cost(PLAN, options).limits
    room = 0.9 * EIGHT.memory("vram").capacity
    each = [count * 2 * 8 * 128 * 2 for count in replica.layers]
    buffers = [sum(use.buffers for use in memory_use(stage)) for stage in _stages(replica.plan, replica.layers)]
    fixed = map(sum, zip(_weights(replica.plan, replica.layers), buffers, strict=True))
    used = [size + limits.gpu_tokens * kv for size, kv in zip(fixed, each, strict=True)]
    assert max(used) <= room < max(size + 16 * kv for size, kv in zip(used, each, strict=True))
    assert replica.accelerators == replica.accelerators[:stages] and len(replica.accelerators) == stages


def test_a_round_is_as_many_slots_as_stages_of_a_part_of_the_requests() -> None:
    """Over links of 360 GB/s hops of 8 rows take next to nothing; a slot has ten layers and the head."""
    four, eight = (replica_cost(PLAN, ReplicaOptions(pipeline_parallel=count)).cost for count in (4, 8))
    one = replica_cost(PLAN, ReplicaOptions(tensor_parallel=1, pipeline_parallel=2)).cost
    layer = one.linear(16) + one.gpu_attention(16_000)  # of micro-batches of 8 requests and 8,000 tokens
    for cost, count in ((four, 4), (eight, 8)):
        work = PassWork(tokens=8 * count, outputs=8 * count, gpu_kv=8000 * count)
        slot = 80 / count * layer + one.ends(16) / 2
        assert gpu_only_seconds(cost, work) == pytest.approx(count * slot, rel=0.003)
        assert cost.stages == count and cost.layers == 80
        assert cost.linear(1) == pytest.approx(cost.linear(count), rel=0.001)
        assert cost.cpu_attention(10_000) == pytest.approx(one.cpu_attention(10_000) * 2 / count, rel=0.02)


def test_a_round_has_what_each_request_costs_once_in_every_layer() -> None:
    """Four micro-batches of 16 requests pass through 8 layers each, one slot after the other."""
    bare = replica_cost(layer_split("Llama-3.1-8B", "h100x2-hgx")).cost
    work = PassWork(tokens=64, outputs=64, gpu_requests=64, gpu_kv=64_000)
    free, costly = (
        gpu_only_seconds(in_rounds(replace(bare, gpu_request=request), (8,) * 4, lambda _: 0.0), work)
        for request in (0.0, 1e-5)
    )
    assert costly - free == pytest.approx(4 * 8 * 16 * 1e-5)


def test_joins_are_of_each_micro_batch() -> None:
    bare = replace(replica_cost(layer_split("Llama-3.1-8B", "h100x2-hgx")).cost, join_device=1e-6, join_host=2e-6)
    found = in_rounds(bare, (8,) * 4, lambda _: 0.0)
    assert (found.join_device, found.join_host) == pytest.approx((1e-6, 8e-6))


def test_uneven_stages_wait_for_the_longest_and_the_last_has_its_head_in_the_wait() -> None:
    three, two = (replica_cost(PLAN, ReplicaOptions(pipeline_parallel=count)).cost for count in (3, 2))
    layer, ends = two.linear(16) + two.gpu_attention(16_000), two.ends(16) / 2
    work = PassWork(tokens=24, outputs=24, gpu_kv=24_000)
    expected = 3 * max(27 * layer, 26 * layer + ends)
    assert gpu_only_seconds(three, work) == pytest.approx(expected, rel=0.003)


def test_stages_may_divide_each_layer_too() -> None:
    found = replica_of(PLAN, ReplicaOptions(tensor_parallel=2, pipeline_parallel=4))
    assert (len(found.accelerators), found.parts, found.layers) == (8, 2, (20,) * 4)
    both = replica_cost(PLAN, ReplicaOptions(tensor_parallel=2, pipeline_parallel=4)).cost
    alone = replica_cost(PLAN, ReplicaOptions(tensor_parallel=2)).cost
    assert both.linear(32) == pytest.approx(alone.linear(8), rel=0.01)


def test_what_no_machine_or_plan_has_is_refused() -> None:
    with pytest.raises(UsageError, match="not as many equal accelerators") as found:
        replica_of(PLAN, ReplicaOptions(tensor_parallel=4, pipeline_parallel=4))
    assert (found.value.field, found.value.value) == ("pipeline_parallel", 4)
    on_host = layer_split("opt-125m", load_hardware("h100x2-hgx", None), on_host=14)
    with pytest.raises(UsageError, match="works on cpu alone") as found:
        replica_of(on_host, ReplicaOptions(pipeline_parallel=2))
    assert (found.value.field, found.value.value) == ("pipeline_parallel", 2) and "cuda" in (found.value.remedy or "")
