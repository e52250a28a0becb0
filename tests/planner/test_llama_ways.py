"""Questions to llama.cpp that leave something open have the fastest of its ways: experts with the CPU, layers on all
accelerators."""

from typing import Any

import pytest

from helmsman.library import emit, plan
from helmsman.lowering.buffers import score_bytes
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import Plan

SMALL = {"gpu": "RTX 3060", "cpu": "AMD Ryzen 9 5950X", "ram": 64 * 2**30}
PAIR = {**SMALL, "gpu": "2x RTX 3060"}


def planned(model: str, hardware: Any, kept: str, **options: Any) -> Plan:
    """Return llama.cpp's plan for a short chat."""
    question = {"model": model, "hardware": hardware, "format": kept, "prompt_tokens": 128, "output_tokens": 128}
    return plan({**question, "engine": "llama.cpp", "options": options}).plan


def request_seconds(made: Plan) -> float:
    predicted = made.predicted
    return predicted.prefill.seconds.mid + 127 * predicted.decode.seconds.mid


def test_as_few_experts_stay_with_the_cpu_as_let_the_rest_fit() -> None:
    fastest_plan = planned("Qwen3-30B-A3B", SMALL, "q4_k_m")
    away = fastest_plan.strategy.options["n_cpu_moe"]
    assert isinstance(away, int) and fastest_plan.label == f"llama-cpp -ngl 49 --n-cpu-moe {away}"
    with pytest.raises(InfeasibleError):
        planned("Qwen3-30B-A3B", SMALL, "q4_k_m", ngl=49, n_cpu_moe=away - 1)
    others = [planned("Qwen3-30B-A3B", SMALL, "q4_k_m", n_cpu_moe=count) for count in (0, away + 4, 48)]
    assert all(request_seconds(fastest_plan) < request_seconds(other) for other in others)


def test_experts_that_fit_stay_on_the_accelerator() -> None:
    assert planned("OLMoE-1B-7B-0924", SMALL, "q4_k_m").label == "llama-cpp -ngl 17"


def test_layers_are_on_all_accelerators_where_that_is_faster() -> None:
    large = planned("Qwen3-14B", PAIR, "q8_0")
    assert large.label == "llama-cpp -ngl 41 -sm layer -ts 21,20"
    assert large.strategy.options["split_mode"] == "layer"
    alone = planned("Qwen3-14B", PAIR, "q8_0", split_mode="none")
    assert alone.label == "llama-cpp -ngl 32" and request_seconds(alone) > 2 * request_seconds(large)
    assert planned("Qwen3-0.6B", PAIR, "q8_0").label == "llama-cpp -ngl 29"


def test_experts_and_layers_are_found_together() -> None:
    """Half of the experts of each accelerator would not do: its own --fit fills both."""
    fastest_plan = planned("Qwen3-30B-A3B", PAIR, "q8_0")
    others = [planned("Qwen3-30B-A3B", PAIR, "q8_0", split_mode=mode) for mode in ("none", "layer")]
    assert fastest_plan.strategy.options["fit"] is True
    assert all(request_seconds(fastest_plan) < 0.9 * request_seconds(other) for other in others)


def test_what_a_question_says_is_kept() -> None:
    assert planned("Qwen3-30B-A3B", PAIR, "q4_k_m", ngl=20, split_mode="none").label == "llama-cpp -ngl 20"
    assert planned("Qwen3-30B-A3B", SMALL, "q4_k_m", cpu_moe=True).label.endswith("--cpu-moe")


def test_where_placements_are_compared_there_is_one_way() -> None:
    assert "--n-cpu-moe" not in planned("Qwen3-30B-A3B", SMALL, "q4_k_m", same_software=True).label


def test_a_model_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(InfeasibleError, match="more in RAM"):
        planned("Qwen3-235B-A22B", PAIR, "q8_0")


def test_slots_are_counted_in_the_formats_of_the_file() -> None:
    """Of a mixture of formats as many layers fit as fit in these, not in the largest of them."""
    fastest_plan = planned("Qwen3-32B", SMALL, "q4_k_m")
    slots = fastest_plan.strategy.options.get("ngl") or int(fastest_plan.label.split()[2])
    assert isinstance(slots, int)
    with pytest.raises(InfeasibleError):
        planned("Qwen3-32B", SMALL, "q4_k_m", ngl=slots + 1)
    used = next(use for use in fastest_plan.predicted.memory if use.memory == "vram")
    assert used.used > 0.95 * used.available


def test_whole_layers_on_all_accelerators_are_recommended_where_shared_blocks_save_nothing() -> None:
    """The search's own plan shares a block among both and the processor, for 0.4 % of a request."""
    question = {"model": "Qwen3-32B", "hardware": PAIR, "format": "q4_0"}
    fastest_plan = plan({**question, "prompt_tokens": 128, "output_tokens": 128}).plan
    assert fastest_plan.label == "llama-cpp -ngl 65 -sm layer -ts 33,32"
    assert all(passed.gain.mid < 0.01 * passed.seconds for passed in fastest_plan.passed_over)


def test_weights_in_ram_stay_in_question_on_several_accelerators_of_models_that_are_not_dense() -> None:
    """Prompts of thousands of tokens are faster with one card that all weights come to; no search knows such models."""
    question = {"model": "Qwen3.5-27B", "hardware": PAIR, "format": "bf16", "prompt_tokens": 8192, "output_tokens": 2}
    assert plan(question).plan.label.startswith("vllm cuda(")
    dense = plan({**question, "model": "Qwen3-32B", "format": "q4_0", "prompt_tokens": 128})
    assert not any(label.startswith("vllm") for label, _ in dense.runner_ups)


def test_a_way_that_llama_cpp_cannot_express_is_passed_over() -> None:
    """--fit moves parts of layers by the names of their tensors, which it has none of for DeepSeek-V3.2."""
    machine = {"gpu": "2x RTX 4090", "cpu": "AMD EPYC 9354", "ram": 768 * 2**30}
    assert planned("DeepSeek-V3.2", machine, "q4_0").label.startswith("llama-cpp -ngl 62 -sm layer")


def test_experts_are_counted_by_the_accelerator_where_the_host_is_small() -> None:
    """Where all experts would be too many for the host, fewer with it are not."""
    machine = {"gpu": "RTX 4090", "cpu": "AMD Ryzen 9 7950X", "ram": 14 * 2**30}
    assert isinstance(planned("Qwen3-30B-A3B", machine, "q8_0").strategy.options["n_cpu_moe"], int)
    with pytest.raises(InfeasibleError):
        planned("Qwen3-30B-A3B", machine, "q8_0", cpu_moe=True)


@pytest.mark.parametrize("model", ["Qwen3-14B", "Qwen3-30B-A3B"])
def test_buffers_have_room_for_a_micro_batch_however_short_the_prompt_is(model: str) -> None:
    """llama.cpp reserves them when it starts; what is asked about shorter prompts fits its own `-ub`."""
    question = {"model": model, "hardware": PAIR, "format": "q4_0", "strategy": "llama-cpp", "context": 4096}
    short, whole = (plan({**question, "prompt_tokens": tokens, "output_tokens": 16}).plan for tokens in (16, 512))
    buffers = [max(use.buffers for use in one.predicted.memory if use.memory != "dram") for one in (short, whole)]
    assert short.schedule.buffered_tokens == 512 and buffers[0] == pytest.approx(buffers[1], rel=0.02)
    small = plan({**question, "prompt_tokens": 16, "output_tokens": 16, "options": {"ubatch": 32}}).plan
    assert max(use.buffers for use in small.predicted.memory if use.memory != "dram") < 0.5 * buffers[0]


def test_blocks_with_norms_after_their_bodies_are_recommended_whole() -> None:
    """The executor runs them on one device each (`executor.passes.plan_check`): no prompt is shared with the card."""
    question = {"model": "gemma-3-12b-it", "hardware": {**SMALL, "gpu": "RTX 3060"}, "prompt_tokens": 128}
    made = plan({**question, "format": "f16", "output_tokens": 128}).plan
    by_layer: dict[int, set[str]] = {}
    for one_pass in passes_of(made).all:
        for task in lower(made, one_pass).tasks:
            if task.layer is not None and task.kind != "transfer":
                by_layer.setdefault(task.layer, set()).add(task.resource)
    assert all(len(devices) == 1 for devices in by_layer.values())
    assert len(set.union(*by_layer.values())) == 2


def test_a_known_prefix_takes_no_room_from_a_micro_batch() -> None:
    """Buffers are of the tokens that are computed, 512 of which a micro-batch holds."""
    question = {"model": "Qwen3-14B", "hardware": PAIR, "format": "q4_0", "strategy": "llama-cpp", "context": 4096}
    alone, behind = (
        plan({**question, "prompt_tokens": 100 + prefix, "prefix_tokens": prefix, "output_tokens": 16}).plan
        for prefix in (0, 600)
    )
    assert [use.buffers for use in alone.predicted.memory] == [use.buffers for use in behind.predicted.memory]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_micro_batch_is_printed_as_it_was_asked_for(batch: int) -> None:
    question = {"model": "Qwen3-0.6B", "hardware": PAIR, "format": "q4_0", "strategy": "llama-cpp", "batch": batch}
    for more, said in (({}, "-ub 512 "), ({"options": {"ubatch": 100}}, "-ub 100 ")):
        assert said in emit(plan({**question, "prompt_tokens": 64, "output_tokens": 16, **more}).plan, "llama.cpp").text


def test_more_sequences_than_llama_cpp_takes_do_not_fit() -> None:
    question = {"model": "Qwen3-0.6B", "hardware": PAIR, "format": "q4_0", "engine": "llama.cpp"}
    assert plan({**question, "batch": "max"}).plan.workload.batch == 256
    with pytest.raises(InfeasibleError, match="at most 256 sequences"):
        plan({**question, "batch": 257})
    assert plan({**question, "engine": None, "strategy": "layer-split", "batch": 257}).plan.workload.batch == 257


def test_attention_in_steps_is_chosen_only_where_its_scores_have_room() -> None:
    """Scores of 512 rows over 40,960 positions and 64 heads are 5.4 GB, and 0.2 are free."""
    question = {"model": "Qwen3-32B", "hardware": "rtx3090-5950x", "format": "q4_k_m", "engine": "llama.cpp"}
    made = plan({**question, "context": 40960, "prompt_tokens": 8192}).plan
    assert " -fa on " in emit(made, "llama.cpp").text and score_bytes(made.model, 512, 40960) > 5e9
