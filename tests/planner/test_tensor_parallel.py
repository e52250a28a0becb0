"""Replicas of several accelerators: parts of layers, what they exchange, and their part of the host."""

import pytest
from served_plans import NEO_70B, layer_split, neo

from helmsman.hwdb.compose import compose
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensors import block_tensors, parameters
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.serving.iteration_cost import replica_cost
from helmsman.planner.serving.replica import ReplicaOptions, replica_of
from helmsman.planner.serving.tensor_parallel import Exchange, equal_accelerators, part_of
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware

MODEL = load_model("Llama-3.1-70B")
PAIR = load_hardware("h100x2-hgx", None)


def _four() -> Hardware:
    return compose("4x H100 SXM 80GB", "2x Intel Xeon Platinum 8462Y+", 2 * 10**12, None, peer=360e9)


def test_parts_have_all_weights_but_norms_twice() -> None:
    part = part_of(MODEL, 2)
    norms = sum(tensor.elements for tensor in block_tensors(MODEL, 0) if len(tensor.shape) == 1)
    assert 2 * parameters(part) == parameters(MODEL) + MODEL.layers * norms + MODEL.hidden


@pytest.mark.parametrize(("model", "parts", "name"), [("Llama-3.1-70B", 3, "heads"), ("opt-125m", 8, "heads")])
def test_a_model_divides_evenly_or_not_at_all(model: str, parts: int, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} cannot be divided evenly"):
        part_of(load_model(model), parts)


def test_as_many_equal_accelerators_as_asked_for() -> None:
    assert [device.name for device in equal_accelerators(roles(PAIR), 2)] == ["cuda", "cuda1"]
    with pytest.raises(UsageError, match="h100x2-hgx has 2"):
        equal_accelerators(roles(PAIR), 4)


def _exchange(hardware: Hardware, count: int) -> Exchange:
    return Exchange(CostModel(hardware), equal_accelerators(roles(hardware), count))


def test_two_tell_each_other_all_and_four_go_round_in_a_ring() -> None:
    link = PAIR.link("vram", "vram1")
    assert link is not None
    latency, rate = link.latency.value, link.bandwidth.value
    assert _exchange(PAIR, 2).add_up(10**6) == pytest.approx(latency + 1e6 / rate)
    four = _exchange(_four(), 4)
    assert four.add_up(10**9) == pytest.approx(6 * (10e-6 + 0.25e9 / 360e9))
    assert four.add_up(1000) == pytest.approx(3 * (10e-6 + 1000 / 360e9))
    assert four.gather(1000) == four.add_up(1000)


def test_without_links_of_their_own_they_go_through_the_host() -> None:
    links = tuple(link for link in PAIR.links if not link.name.startswith("p2p"))
    apart = PAIR.model_copy(update={"links": links})
    hop = apart.link("vram", "dram")
    assert hop is not None
    expected = 2 * (hop.latency.value + 1e6 / hop.bandwidth.value)
    assert _exchange(apart, 2).add_up(10**6) == pytest.approx(expected)


def test_two_parts_take_half_of_each_layer_and_what_they_exchange() -> None:
    """Llama-3.1-70B does not fit one of them; a model that does is compared."""
    plan = layer_split("Llama-3.1-8B", PAIR)
    one, two = (replica_cost(plan, ReplicaOptions(tensor_parallel=count)) for count in (1, 2))
    exchanged = 2 * _exchange(PAIR, 2).add_up(2048 * 4096 * 2)
    halves = one.cost.linear(2048) / 2 + exchanged
    assert halves == pytest.approx(two.cost.linear(2048), rel=0.1)
    assert two.cost.gpu_attention(40_000) == pytest.approx(one.cost.gpu_attention(40_000) / 2)
    assert two.cost.swap_out(10**6) == pytest.approx(one.cost.swap_out(10**6) / 2, rel=0.001)
    assert two.limits.gpu_tokens > 2 * one.limits.gpu_tokens


def test_a_replica_has_its_accelerators_part_of_the_node() -> None:
    plan = layer_split("Llama-3.1-8B", PAIR)
    one, two = (replica_of(plan, ReplicaOptions(tensor_parallel=count)) for count in (1, 2))
    assert two.hardware == PAIR
    assert one.host.read.value == PAIR.device("cpu").read.value / 2
    assert one.hardware.memory("dram").available == PAIR.memory("dram").available // 2
    whole = replica_of(plan, ReplicaOptions(host_share=1.0))
    assert whole.hardware == PAIR


def test_half_a_host_reads_half_as_fast_and_holds_half_as_much() -> None:
    plan = layer_split("opt-125m", PAIR)
    half, full = (replica_cost(plan, ReplicaOptions(host_share=share)) for share in (0.5, 1.0))
    assert half.cost.cpu_attention(10**6) == pytest.approx(2 * full.cost.cpu_attention(10**6), rel=0.001)
    assert half.limits.cpu_tokens == pytest.approx(full.limits.cpu_tokens / 2, abs=16)


def test_another_nodes_accelerators_are_not_counted() -> None:
    """Two GPUs of two nodes: each has all of its own."""
    hardware = load_hardware("a40x2-2xeon6330", None)
    alone = replica_of(layer_split("opt-125m", hardware), ReplicaOptions())
    nodes = {device.memory for device in hardware.devices if device.kind == "cpu"}
    assert len(nodes) == 2 and alone.host.read == hardware.device(alone.host.name).read


def test_the_cache_of_the_host_holds_all_heads() -> None:
    found = neo(*NEO_70B)
    room = PAIR.memory("dram").available
    assert found.limits.cpu_tokens == pytest.approx(room / (80 * 2 * 8 * 128 * 2), abs=17)
    assert found.cost.layers == 80


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("utilisation", 0.0),
        ("utilisation", 1.1),
        ("host_share", -1.0),
        ("tensor_parallel", 0),
        ("pipeline_parallel", 0),
        ("chunk", -1),
    ],
)
def test_options_that_mean_nothing_are_refused(field: str, value: float) -> None:
    with pytest.raises(UsageError) as found:
        ReplicaOptions(**{field: value})
    assert (found.value.field, found.value.value) == (field, value)
