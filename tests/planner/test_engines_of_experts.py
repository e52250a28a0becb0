"""vLLM's offloaded parameters, windows of caches and formats of files for models that are not of equal dense blocks."""

from dataclasses import replace

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.library import plan
from helmsman.lowering.lower import lower
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.decide import decide
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.read_request import request_from
from helmsman.planner.strategies.engines.parameters import block_parameters
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, place
from helmsman.planner.strategies.layer_windows import suits_windows
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.vllm import offloaded
from helmsman.planner.tensor_formats import of_pattern, told_apart
from helmsman.schemas.errors import UsageError
from helmsman.schemas.workload import Workload

MACHINE = "a4000-7950x"


@pytest.mark.parametrize("name", ["Qwen3.5-35B-A3B", "DeepSeek-V2-Lite", "gpt-oss-20b", "gemma-4-26B-A4B", "Qwen3-8B"])
def test_every_tensor_is_in_one_parameter(name: str) -> None:
    """Gate and up of all experts are one parameter, and come after what all tokens go through."""
    model = load_model(name)
    for layer in {model.pattern.index(letter) for letter in model.pattern}:
        parameters = [[tensor.name for tensor in members] for members in block_parameters(model, layer)]
        names = [member for members in parameters for member in members]
        assert sorted(names) == sorted(tensor.name for tensor in block_tensors(model, layer))
        if "experts_up.weight" in names:
            assert ["experts_gate.weight", "experts_up.weight"] in parameters
            assert names.index("router.weight") < names.index("experts_gate.weight") < names.index("norm2.weight")


def test_vllm_offloads_parameters_from_the_first_block() -> None:
    model, work = load_model("gpt-oss-20b"), Workload(prompt_tokens=64, output_tokens=8, context=72)
    frame = Frame(model, roles(load_hardware(MACHINE, None)), work, "q4_0")
    block = sum(tensor.size("q4_0") for tensor in block_tensors(model, 0))
    assert offloaded(frame, 0) == (0, ())
    assert offloaded(frame, 2 * block) == (2, ())
    whole, parts = offloaded(frame, 2 * block + 1)
    assert whole == 2 and [tensor.name for tensor in parts] == ["q.weight", "k.weight", "v.weight"]
    assert offloaded(frame, 10**13) == (model.layers, ())


def test_vllm_reads_the_chosen_experts_of_offloaded_blocks_over_the_link() -> None:
    question = {"model": "gpt-oss-20b", "hardware": MACHINE, "format": "q4_0", "strategy": "vllm", "prompt_tokens": 64}
    made = plan({**question, "output_tokens": 8, "options": {"cpu_offload_gb": 6}}).plan
    moved = [t for t in lower(made, mean_step(made.workload)).tasks if t.kind == "transfer" and t.payload == "weights"]
    home = next(use.weights for use in made.predicted.memory if use.memory == "dram")
    assert 6 * 2**30 <= home < 6.4 * 2**30
    assert 4 / 32 * 0.8 * home < sum(task.bytes for task in moved) < 4 / 32 * 2 * home


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gemma-3-4b-it", "Qwen3.5-35B-A3B", "DeepSeek-V3.2"])
def test_windows_of_other_caches_are_refused(name: str) -> None:
    question = {"model": name, "hardware": MACHINE, "format": "q4_0", "strategy": "layer-split", "prompt_tokens": 4096}
    with pytest.raises(UsageError, match="do not all attend to every token"):
        plan({**question, "output_tokens": 8, "options": {"kv_window": "auto"}})
    assert not suits_windows(load_model(name))


@pytest.mark.parametrize("name", ["Qwen3-30B-A3B", "DeepSeek-V2-Lite", "Qwen3-8B"])
def test_models_whose_layers_read_every_token_have_windows(name: str) -> None:
    """And plans with some are accepted by whatever reads them."""
    assert suits_windows(load_model(name))
    question = {"model": name, "hardware": MACHINE, "format": "q4_0", "strategy": "layer-split", "prompt_tokens": 4096}
    made = plan({**question, "output_tokens": 8, "context": 16384, "options": {"kv_window": 2048}}).plan
    assert any(rule.cache is not None for rule in made.kv) and accept(made) == made


def test_all_matrices_of_experts_that_come_one_operation_after_the_other_have_room_at_once() -> None:
    """A stage of ours multiplies by all of them at once (`executor.homes.staging`); llama.cpp copies one at a time."""
    model = load_model("DeepSeek-V2-Lite").with_layers(2)
    question = {"model": model, "hardware": MACHINE, "format": "q8_0", "strategy": "llama-cpp", "prompt_tokens": 100}
    matrix = 64 * 2048 * 1408 * 34 // 32
    for ours, count in ((True, 3), (False, 1)):
        made = plan({**question, "output_tokens": 8, "options": {"n_cpu_moe": 2, "same_software": ours}}).plan
        buffers = {use.memory: use.buffers for use in made.predicted.memory}
        assert count * matrix < buffers["vram"] < count * matrix + 1.5e8 and buffers["dram"] < matrix


def test_flexgen_says_what_a_model_has() -> None:
    for strategy in ("flexgen-lp", "flexgen"):
        question = {"model": "gpt-oss-20b", "hardware": MACHINE, "format": "q4_0", "strategy": strategy}
        refusal = f"strategy: {strategy} plans models of equal dense blocks, and gpt-oss-20b has [^\n]+; use `strategy`"
        with pytest.raises(UsageError, match=refusal):
            plan({**question, "prompt_tokens": 64, "output_tokens": 8})


def test_blocks_with_other_formats_are_told_apart() -> None:
    model = load_model("Qwen3-30B-A3B").with_layers(6)
    formats = {("experts_down.weight", layer): "q6_k" if layer % 3 == 0 else "q4_k" for layer in range(6)}
    assert told_apart(model, formats).pattern == "abbabb"
    assert told_apart(model, {}) is model
    assert of_pattern(told_apart(model, formats), formats, "bba") == {
        ("experts_down.weight", 0): "q4_k", ("experts_down.weight", 1): "q4_k", ("experts_down.weight", 2): "q6_k",
    }  # fmt: skip


def test_experts_are_placed_by_the_formats_of_their_own() -> None:
    """No layout with every tensor in its own format is faster, nor fits where the chosen one would not."""
    question = {"model": "Qwen3-30B-A3B", "hardware": MACHINE, "format": "q4_k_m", "strategy": "expert-split"}
    request = request_from({**question, "prompt_tokens": 64, "output_tokens": 64, "vram_available": 12 * 10**8})
    layers = 3
    small = request.model.with_layers(layers)
    formats = {key: fmt for key, fmt in request.formats.items() if key[1] is None or key[1] < layers}
    made = decide(replace(request, model=small, formats=formats))
    assert {rule.format for rule in made.plan.residence} == {"q4_k", "q6_k"} and made.plan.model == small
    frame = Frame(small, roles(request.hardware), request.workload, "q4_k", fused=True, formats=formats)
    question_of_all = Question(frame, CostOptions())
    seconds = [
        question_of_all.seconds(placed)
        for host in range(layers + 1)
        for away in range(layers - host + 1)
        for kept in range(0, 128, 32)
        for placed in [place(frame, ExpertLayout(host, away, kept if away else 0, False))]
        if question_of_all.fits(placed)
    ]
    assert made.seconds <= 1.01 * min(seconds)


def test_two_accelerators_work_on_a_model_of_several_kinds_of_blocks() -> None:
    machine = {"gpu": "2x GTX 1060 6GB", "cpu": "AMD Ryzen 9 7950X", "ram": 64 * 2**30}
    question = {"model": "gemma-3-4b-it", "hardware": machine, "prompt_tokens": 64, "output_tokens": 32}
    decision = plan(question)
    assert decision.plan.strategy.name == "llama-cpp" and "-sm layer" in decision.plan.label
    assert {rule.device for rule in decision.plan.compute} >= {"cuda", "cuda1"} and not decision.unused


def test_micro_batches_of_llama_cpp_bring_experts_again() -> None:
    """Of a prompt of 2,048 tokens by default four times; our executor in its place takes one pass."""

    def prompt(**options: object) -> float:
        common = {"model": "Qwen3-30B-A3B", "hardware": MACHINE, "format": "q4_0", "strategy": "llama-cpp"}
        work = {"prompt_tokens": 2048, "output_tokens": 16, "options": {"cpu_moe": True, **options}}
        return decide(request_from({**common, **work})).plan.predicted.prefill.seconds.mid

    once = prompt(ubatch=2048)
    assert 2.5 < prompt() / once < 4.0
    assert prompt(same_software=True) == pytest.approx(prompt(same_software=True, ubatch=2048))
    with pytest.raises(UsageError, match="ubatch"):
        prompt(ubatch=0)
