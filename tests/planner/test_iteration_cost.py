"""Costs of iterations against passes as lowered and predicted, and against figures that published systems imply."""

from random import Random

import pytest
from daily import one_in
from iteration_times import gpu_only_seconds
from lowered_serving import lower_serving
from plans import make_hardware, sharing_hardware
from served_plans import NEO_8B, NEO_70B, layer_split, neo
from serving_iteration import ServingIteration, SubBatch

from helmsman.lowering.lower import lower
from helmsman.lowering.serving_names import DECODE_ATTENTION, HOST_ATTENTION
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.predict import pass_seconds
from helmsman.planner.serving.iteration_cost import replica_cost
from helmsman.scheduler.iteration import Iteration
from helmsman.scheduler.pass_work import PassWork
from helmsman.timing.handovers import without_time_between

GIB = 2**30


def _decode(sequences: int, context: int) -> tuple[Iteration, PassWork]:
    work = PassWork(tokens=sequences, outputs=sequences, gpu_kv=sequences * context)
    return Iteration(1, "decode", sequences, 1, context), work


def _prompt(tokens: int) -> tuple[Iteration, PassWork]:
    work = PassWork(tokens=tokens, outputs=1, pairs=tokens * (tokens + 1) // 2, prompt_kv=tokens)
    return Iteration(0, "prefill", 1, tokens, tokens), work


@pytest.mark.parametrize(
    ("model", "machine", "on_host", "layers"),
    one_in(
        2,
        [
            ("Llama-3.1-8B", "a10g-g5.4xlarge", 0, 32),
            ("opt-125m", "rtx4060-laptop", 2, 2),
            ("opt-125m", "epyc9554-cpu", 14, 12),
            ("Qwen3-8B", "l40s-epyc7413", 0, 36),  # launched eagerly: operations take at least their launches
        ],
    ),
)
def test_an_iteration_costs_what_the_pass_is_predicted_to_take(
    model: str, machine: str, on_host: int, layers: int
) -> None:
    plan, rng = layer_split(model, machine, on_host, layers), Random(1)
    costs, cost = CostModel(plan.hardware), replica_cost(plan).cost
    decodes = [_decode(rng.randint(1, 128), rng.randint(1, 1000)) for _ in range(4)]
    for iteration, work in [*decodes, *(_prompt(rng.randint(1, 2000)) for _ in range(4))]:
        assert gpu_only_seconds(cost, work) == pytest.approx(pass_seconds(lower(plan, iteration), costs), rel=0.01)


def test_the_host_reads_kv_heads_and_computes_all_heads() -> None:
    """8 of 32 heads: 4 FLOP a byte, so arithmetic binds where the memory is fast enough (E-NEO-09)."""
    plan, cost = layer_split(*NEO_8B[:2]), neo(*NEO_8B).cost
    host = plan.hardware.device("cpu")
    rate = host.read.value * 0.6
    assert cost.cpu_attention(40_000) == pytest.approx(40_000 * 4096 / rate, rel=0.01)
    quick = host.model_copy(update={"read": host.read.model_copy(update={"value": 1e13, "p90": 1e13})})
    devices = tuple(quick if device.name == "cpu" else device for device in plan.hardware.devices)
    fast = layer_split(NEO_8B[0], plan.hardware.model_copy(update={"devices": devices}))
    flops = 4 * 4096 * 40_000 / (host.compute[1].flops.value * 0.3)
    assert replica_cost(fast).cost.cpu_attention(40_000) == pytest.approx(flops, rel=0.01)


def test_requests_cost_as_much_in_closed_form_as_in_a_pass() -> None:
    """Beside the bytes that they read, on the host and on the accelerator."""
    bare = layer_split(*NEO_8B[:2])
    taken = {"cpu": 2e-5, "cuda": 3e-5}
    devices = (
        device.model_copy(update={"request": device.read.model_copy(update={"value": taken[device.name]})})
        for device in bare.hardware.devices
    )
    hardware = bare.hardware.model_copy(update={"devices": tuple(devices)})
    plan, contexts = layer_split(NEO_8B[0], hardware), (40, 900, 31)
    cost, free = replica_cost(plan).cost, replica_cost(bare).cost
    graph = lower_serving(plan, ServingIteration(0, "none", (SubBatch(gpu=contexts, cpu=contexts),)))
    host, accelerator = (
        next(CostModel(plan.hardware).price(task).mid for task in graph.tasks if task.op == op)
        for op in (HOST_ATTENTION, DECODE_ATTENTION)
    )
    assert (cost.cpu_request, cost.gpu_request) == (2e-5, 3e-5)
    assert (free.cpu_request, free.gpu_request) == (0, 0)
    assert host == pytest.approx(cost.cpu_attention(971) + 3 * 2e-5, rel=0.01)
    assert accelerator == pytest.approx(cost.gpu_attention(971) + 3 * 3e-5, rel=0.01)


def test_what_waits_for_a_transfer_begins_a_hand_over_later() -> None:
    cost = replica_cost(layer_split("Qwen3-0.6B", sharing_hardware())).cost
    bare = replica_cost(layer_split("Qwen3-0.6B", without_time_between(sharing_hardware()))).cost
    assert cost.to_host(3) == pytest.approx(bare.to_host(3) + 4e-6)
    assert cost.to_device(3) == pytest.approx(bare.to_device(3) + 4e-6)
    assert cost.swap_out(3) == bare.swap_out(3) and cost.to_host(0) == 0
    assert (cost.join_device, cost.join_host) == pytest.approx((2e-6, 2e-6))
    assert (bare.join_device, bare.join_host) == (0, 0)


def test_links_move_queries_keys_values_and_back_only_outputs() -> None:
    hardware = make_hardware(ram=GIB, vram=GIB, bandwidth=4e9, latency=20e-6, kind="cuda")
    cost = replica_cost(layer_split("opt-125m", hardware)).cost
    width = 768 * 2
    assert cost.to_host(10) == pytest.approx(20e-6 + 10 * 3 * width / 4e9)
    assert cost.to_device(10) == pytest.approx(20e-6 + 10 * width / 4e9)
    assert cost.swap_out(1000) == cost.swap_in(1000) == pytest.approx(20e-6 + 1000 * 2 * width / 4e9)
    assert cost.swap_out(0) == 0


def test_the_linear_stage_is_flat_while_weights_are_what_takes_time() -> None:
    """As figures of single GPUs have it (APEX-03); how long depends on FLOPs a byte that the record says."""
    cost = neo(*NEO_70B).cost
    assert cost.linear(128) < 1.1 * cost.linear(1)
    assert cost.linear(1024) > 2 * cost.linear(1)


def test_attention_goes_on_rising_beyond_what_a_cache_holds() -> None:
    """8 thousand tokens on two H100 take no longer than a launch; what is beyond them does."""
    cost = neo(*NEO_70B).cost
    assert cost.gpu_attention(1000) == pytest.approx(8e-6)
    rate = layer_split(*NEO_70B[:2]).hardware.device("cuda").read.value * 0.78
    assert cost.gpu_attention(10**6) == pytest.approx(10**6 * 2048 / rate, rel=0.01)
