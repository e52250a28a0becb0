"""vLLM's share of cards, its reserve beside weights and caches, and cards that divide every layer."""

from typing import Any

import pytest

from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.load_model import load_model
from helmsman.library import compare, emit, plan
from helmsman.lowering.operation import Formats
from helmsman.lowering.ops import operations
from helmsman.lowering.tensors import parameters
from helmsman.planner.serving.engine_reserve import PassLimits, reserved_bytes, usual_passes
from helmsman.planner.serving.kv_budget import limits_of
from helmsman.planner.serving.layer_facts import state_bytes
from helmsman.planner.serving.replica import ReplicaOptions, replica_of
from helmsman.planner.serving.tensor_parallel import held_by, part_of
from helmsman.scheduler.iteration import Iteration
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.figures import scaled_figure
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan

CPU = "2x Intel Xeon Platinum 8462Y+"
PAIR = compose("2x RTX 4090", "AMD EPYC 7742", 256 * GIB, "pcie4x16")


def vllm_plan(hardware: Hardware, model: str = "Llama-3.1-8B", fmt: str | None = "bf16", **options: Any) -> Plan:
    """Return the plan of vLLM for a model in a format (None: its own) on a machine, with vLLM's `options`."""
    question = {"model": model, "hardware": hardware, "format": fmt, "strategy": "vllm", "options": options}
    return plan({**question, "prompt_tokens": 512, "output_tokens": 128}).plan


def held(asked: Plan, **options: int) -> Limits:
    """Return what a replica of a plan holds."""
    given = ReplicaOptions(**options)
    return limits_of(replica_of(asked, given), given)


def test_the_cache_is_as_large_as_vllm_says() -> None:
    """LLMServingSim@da26736, bench/results/llama-3.1-8b-rtx4090/meta.json: 2,588 blocks of 16 tokens, vLLM 0.19.0,
    2,048 tokens and 256 sequences a pass, within 0.9 of 25,250,627,584 bytes."""
    limits = held(vllm_plan(compose("RTX 4090", "AMD EPYC 7742", 64 * GIB, None)))
    assert limits.gpu_tokens == pytest.approx(41_408, rel=0.03)
    assert (limits.batch_tokens, limits.sequences, limits.chunk) == (2048, 256, 2048)


def test_the_reserve_is_of_sampling_or_of_the_network() -> None:
    """vLLM 0.19's own figures leave 1.153 GiB beside weights and cache."""
    model = load_model("Llama-3.1-8B")
    usual = usual_passes("RTX 4090", 24 * GIB)
    assert reserved_bytes(model, usual, "bf16") / GIB == pytest.approx(1.153, rel=0.01)
    fewer = reserved_bytes(model, PassLimits(2048, 16), "bf16")
    assert fewer < reserved_bytes(model, PassLimits(8192, 16), "bf16") < reserved_bytes(model, usual, "bf16") + GIB
    assert usual_passes("H100 SXM 80GB", 80 * GIB).sequences == usual_passes("2x H200 SXM", 282 * GIB).sequences == 1024
    assert usual_passes("A100 SXM 80GB", 80 * GIB).sequences == 256
    assert reserved_bytes(model, usual, "bf16", graphs=True) > reserved_bytes(model, usual, "bf16")


def test_every_card_has_vllms_share_so_that_replicas_divide_layers() -> None:
    """A plan of one of two equal cards is served by both."""
    one = vllm_plan(PAIR, tensor_parallel_size=1)
    assert len({memory.available for memory in one.hardware.memories if memory.kind == "vram"}) == 1
    assert held(one, tensor_parallel=2).gpu_tokens > 3 * held(one).gpu_tokens


def test_cards_that_divide_layers_are_one_device_that_adds_up() -> None:
    alone, both = (vllm_plan(PAIR, tensor_parallel_size=count) for count in (1, 2))
    steps = [each.predicted.decode.seconds.mid for each in (alone, both)]
    assert 0.5 * steps[0] < steps[1] < 0.9 * steps[0]
    linked = vllm_plan(compose("2x RTX 4090", "AMD EPYC 7742", 256 * GIB, "pcie4x16", 50e9), tensor_parallel_size=2)
    assert linked.predicted.prefill.seconds.mid < both.predicted.prefill.seconds.mid
    assert both.label == "vllm 2x cuda(34)" and [d.name for d in both.hardware.devices] == ["cpu", "cuda"]
    assert held(both).gpu_tokens == pytest.approx(held(alone, tensor_parallel=2).gpu_tokens, rel=0.01)
    assert held(both, tensor_parallel=2) == held(both)
    assert "--tensor-parallel-size 2" in emit(both, "vllm").text
    assert "--quantization awq" in emit(vllm_plan(PAIR, quantization="awq"), "vllm").text


def test_engines_that_divide_no_layers_have_them_in_turn() -> None:
    both = vllm_plan(PAIR, tensor_parallel_size=2)
    assert "--tp-size 2" in emit(both, "sglang").text
    settings = emit(both, "llama.cpp")
    assert "-ngl 33 -sm layer -ts 16.5,16.5 " in settings.text
    assert "2 cards divide every layer" in [difference.what for difference in settings.differences]
    assert "2 cards divide every layer" in [difference.what for difference in emit(both, "accelerate").differences]


def test_a_refusal_names_the_cards_that_would_do() -> None:
    with pytest.raises(InfeasibleError, match="tensor_parallel_size"):
        vllm_plan(PAIR, "Qwen3-14B", tensor_parallel_size=1)
    assert vllm_plan(PAIR, "Qwen3-14B", tensor_parallel_size=2).predicted.memory


def test_as_many_cards_divide_layers_as_is_fastest() -> None:
    fits, large = vllm_plan(PAIR), vllm_plan(PAIR, "Qwen3-14B")
    assert fits.strategy.options["tensor_parallel_size"] == large.strategy.options["tensor_parallel_size"] == 2
    small = vllm_plan(PAIR, "Qwen3-0.6B")
    one, two = (vllm_plan(PAIR, "Qwen3-0.6B", tensor_parallel_size=count) for count in (1, 2))
    seconds = [each.predicted.decode.seconds.mid for each in (small, one, two)]
    assert seconds[0] == seconds[1] < seconds[2] and small.strategy.options["tensor_parallel_size"] == 1
    with pytest.raises(InfeasibleError, match="cpu_offload_gb"):
        vllm_plan(PAIR, "Llama-3.3-70B-Instruct")


def test_other_numbers_of_cards_are_refused() -> None:
    with pytest.raises(UsageError, match="heads cannot be divided evenly"):
        vllm_plan(compose("3x RTX 4090", CPU, 256 * GIB, None), tensor_parallel_size=3)


def test_experts_are_divided_too() -> None:
    model = load_model("Qwen3-30B-A3B")
    half = part_of(model, 2)
    assert parameters(half) == pytest.approx(parameters(model) / 2, rel=0.01)
    with pytest.raises(UsageError, match="heads cannot be divided evenly"):
        part_of(model, 3)


@pytest.mark.parametrize("name", ["Qwen3.5-35B-A3B", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"])
def test_states_are_divided_by_heads(name: str) -> None:
    model = load_model(name)
    half = part_of(model, 2)
    assert parameters(half) == pytest.approx(parameters(model) / 2, rel=0.02)
    assert 2 * state_bytes(half, 1) == state_bytes(model, 1) > 0


def test_cards_that_are_more_than_kv_heads_have_copies_of_them() -> None:
    model = load_model("Qwen3-30B-A3B")
    part = part_of(model, 8)
    assert {part.attention(layer).kv_heads for layer in range(model.layers)} == {1}
    four, eight = (
        vllm_plan(compose(f"{count}x RTX 4090", CPU, 256 * GIB, None), "Qwen3-30B-A3B", tensor_parallel_size=count)
        for count in (4, 8)
    )
    bytes_of = [size.kv for made_plan in (four, eight) for size in made_plan.predicted.memory if size.kv]
    assert bytes_of[1] == 2 * bytes_of[0]
    assert eight.model.attention(0).kv_heads == 8 and eight.model.name == four.model.name


def test_each_card_has_all_of_a_latent_cache() -> None:
    """All heads of DeepSeek-V3 share 576 values of a token; vLLM 0.12's docs, data_parallel_deployment, advise to
    divide sequences rather than heads for that."""
    model = load_model("DeepSeek-V3")
    together, part = held_by(model, 8), part_of(model, 8)
    step, formats = Iteration(32, "decode", 1, 1, 1024), Formats("bf16", "bf16", "bf16")
    of_each = [operations(each, step, formats) for each in (model, together, part)]
    assert [sum(op.kv_read for op in ops) / sum(op.kv_read for op in of_each[0]) for ops in of_each] == [1, 8, 1]
    assert [sum(op.kv_write for op in ops) / sum(op.kv_write for op in of_each[0]) for ops in of_each] == [1, 8, 1]
    indexed = [held_by(load_model("DeepSeek-V3.2"), parts) for parts in (1, 8)]
    scores = [sum(op.flops for op in operations(each, step, formats) if op.kind == "index") for each in indexed]
    assert scores[1] == 8 * scores[0] > 0 and indexed[0] == load_model("DeepSeek-V3.2")
    pair = [
        vllm_plan(compose(f"{count}x RTX 4090", CPU, 256 * GIB, None), "DeepSeek-V2-Lite", tensor_parallel_size=count)
        for count in (2, 4)
    ]
    caches = [sum(size.kv for size in made_plan.predicted.memory) for made_plan in pair]
    assert caches[0] == 2 * 27 * 2 * 576 * 640 and caches[1] == 2 * caches[0]
    assert held(pair[1]).gpu_tokens < 2.5 * held(pair[0]).gpu_tokens


def test_batches_are_sought_up_to_what_all_numbers_of_cards_hold() -> None:
    """One card holds the model alone for no sequence; a refusal says what the two hold."""
    question = {"model": "Qwen3-14B", "hardware": PAIR, "format": "f16", "strategy": "vllm"}
    lengths = {"prompt_tokens": 128, "output_tokens": 128}
    largest_plan = plan({**question, **lengths, "batch": "best", "objective": "throughput"}).plan
    assert largest_plan.workload.batch > 100 and largest_plan.label.startswith("vllm 2x")
    with pytest.raises(InfeasibleError) as refusal:
        plan({**question, **lengths, "batch": 1000})
    assert refusal.value.largest_batch is not None and refusal.value.largest_batch >= largest_plan.workload.batch


def test_equal_cards_are_joined_wherever_they_are() -> None:
    """Two RTX 4090 beside a slower card, which comes first."""
    three = compose("3x RTX 4090", CPU, 256 * GIB, None)
    first = three.device("cuda")
    slow = first.model_copy(update={"product": "RTX 3060", "read": scaled_figure(first.read, 0.3)})
    devices = tuple(slow if device is first else device for device in three.devices)
    mixed = three.model_copy(update={"devices": devices})
    both = vllm_plan(mixed, "Qwen3-14B")
    used = both.hardware.device(
        next(rule.device for rule in both.compute if both.hardware.device(rule.device).kind != "cpu")
    )
    assert used.product == "2x RTX 4090" and both.label.startswith("vllm 2x")
    assert "-sm layer -ts 0,20.5,20.5 " in emit(both, "llama.cpp").text


def test_experts_of_a_file_of_several_formats_fill_the_card() -> None:
    machine = {"gpu": "RTX 4090", "cpu": "AMD EPYC 9354", "ram": 256 * GIB}
    full_plan = plan({"model": "gpt-oss-120b", "hardware": machine, "engine": "ktransformers"}).plan
    used = next(use for use in full_plan.predicted.memory if use.memory == "vram")
    assert full_plan.strategy.options["gpu_experts"] > 40 and used.used > 0.95 * used.available


def test_engines_are_compared_by_the_plans_that_they_have_when_asked_alone() -> None:
    """Llama-3.3-70B in Q4_K_M fits no RTX 3090 whole, and two: with layers in turn, or divided."""
    pair = compose("2x RTX 3090", "AMD Ryzen 9 7950X", 128 * GIB, None)
    question = {"model": "Llama-3.3-70B-Instruct", "hardware": pair, "format": "q4_k_m"}
    rows = compare(question, ["llama-cpp", "vllm", "layer-split"]).rows
    planned = {row.strategy: row.planned for row in rows if row.planned is not None}
    used = {name: {use.memory for use in its.memory if use.weights} for name, its in planned.items()}
    assert {"vram", "vram1"} <= used["llama-cpp"] and "vram1" not in used["layer-split"]
    assert planned["vllm"].label.startswith("vllm 2x")
