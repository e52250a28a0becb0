"""Settings that are written for a plan of an engine are read as that plan: contexts, formats and speeds survive."""

from functools import cache
from typing import Any

import pytest
from daily import one_in
from hypothesis import given, settings
from hypothesis import strategies as st

from helmsman.analysis.ask_settings import reading_of, settings_of
from helmsman.library import emit
from helmsman.planner.decide import decide
from helmsman.planner.prediction.speed import planned as planned_for
from helmsman.planner.read_request import request_from
from helmsman.planner.request import PlanRequest
from helmsman.planner.settings.engine_format import SettingsSubject
from helmsman.planner.settings.llama_places import numbers_pattern
from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.planner.settings.registry import engine_of, read_text
from helmsman.planner.settings.settings_format import settings_format
from helmsman.planner.settings.tensor_pattern import tensor_pattern
from helmsman.schemas.engine_names import ENGINES
from helmsman.schemas.errors import HelmError, InfeasibleError, UsageError
from helmsman.schemas.formats import NAMED_MIXES
from helmsman.schemas.plan import Plan

MACHINES: tuple[Any, ...] = ("a4000-7950x", {"gpu": "2x RTX 4080", "cpu": "AMD EPYC 9355", "ram": 384 * 2**30})
MODELS = ("Qwen3-0.6B", "Qwen3-30B-A3B", "gpt-oss-20b", "Qwen3.5-35B-A3B")


def asked(model: str, machine: Any, strategy: str, kept: str = "q4_0", **more: Any) -> Any:
    """Return a request."""
    question = {"model": model, "hardware": machine, "format": kept, "strategy": strategy, **more}
    return request_from({"prompt_tokens": 64, "output_tokens": 8, **question})


def check(request: Any, engine: str, exact: bool = True) -> None:
    """Check that settings for an engine, read again, are the same plan, and write the same settings."""
    plan = decide(request).plan
    content = settings_of(plan, engine, request)
    assert engine_of(content.text) == engine
    subject = SettingsSubject(request.model, request.weights, request.formats, request.hardware, request.workload)
    read = read_text(content.text, subject)
    again = reading_of(content.text, request)
    assert again.yours.speed == content.plan.speed, content.text
    assert again.yours.memory == content.plan.memory
    assert not (exact and content.differences), content.differences
    assert read.context in (None, plan.workload.context) and read.batch in (None, plan.workload.batch)
    assert read.kv in (None, PlanPlaces(plan).nearest_kv_format)


@st.composite
def llama_questions(draw: st.DrawFn) -> Any:
    """Return a model, whether there are several accelerators, and what else is asked of llama.cpp; it may not fit."""
    model, machine = draw(st.sampled_from(MODELS)), draw(st.sampled_from(MACHINES))
    several = isinstance(machine, dict)
    options: dict[str, Any] = {"ngl": draw(st.integers(0, 50))}
    if model != "Qwen3-0.6B" and draw(st.booleans()):
        options |= draw(st.sampled_from([{"cpu_moe": True}, {"n_cpu_moe": 11}, {"n_cpu_moe": 0}, {"n_cpu_moe": 23}]))
    if draw(st.booleans()):
        buffers = ["CPU", "CUDA0", *(["CUDA1"] if several else [])]
        patterns = (r"blk\.[0-9]\.ffn_", r"blk\.1\.", r"attn_(k|v)\.", "ffn_norm", r"blk\.(3|1[0-5])\.", "^output")
        options["override_tensor"] = f"{draw(st.sampled_from(patterns))}={draw(st.sampled_from(buffers))}"
    if several and draw(st.booleans()):
        options["tensor_split"] = draw(st.sampled_from(["3,1", "0,1", "1,1"]))
    if draw(st.booleans()):
        options["ubatch"] = draw(st.sampled_from([16, 64, 300, 2048]))
    if draw(st.booleans()):
        options["threads"] = draw(st.sampled_from([1, 8, 128]))
    options["no_op_offload"] = draw(st.booleans())
    work = {"batch": draw(st.sampled_from([1, 3, 40])), "kv_format": draw(st.sampled_from(["f16", "q8_0", "bf16"]))}
    return model, several, {**work, "context": draw(st.sampled_from([72, 4096])), "options": options}


@settings(max_examples=12)
@given(llama_questions())
def test_commands_of_llama_cpp_are_read_as_they_were_written(question: Any) -> None:
    model, several, more = question
    request = asked(model, MACHINES[several], "llama-cpp", **more)
    try:
        decide(request)
    except (InfeasibleError, UsageError):
        return
    check(request, "llama.cpp")


@pytest.mark.parametrize("machine", MACHINES, ids=["one", "two"])
@pytest.mark.parametrize("model", ["Qwen3-32B", "Qwen3-30B-A3B"])
def test_what_llama_cpp_fits_itself_is_written_with_its_flags(model: str, machine: Any) -> None:
    check(asked(model, machine, "llama-cpp", "f16", options={"fit": True}), "llama.cpp")


CASES = [
    ("Qwen3-14B", "vllm", "vllm", {"cpu_offload_gb": 15.5}),
    ("Qwen3-14B", "vllm", "vllm", {"cpu_offload_gb": "least", "gpu_memory_utilization": 0.7}),
    ("Qwen3-8B", "accelerate", "accelerate", {}),
    ("Qwen3-14B", "accelerate", "accelerate", {"modules": "0-12,20,41"}),
    ("Qwen3-0.6B", "accelerate", "accelerate", {"modules": "none"}),
    ("Qwen3-14B", "deepspeed", "zero-inference", {}),
    ("Qwen3-0.6B", "deepspeed", "zero-inference", {"resident": True}),
    ("Qwen3-30B-A3B", "ktransformers", "ktransformers", {"gpu_experts": 17}),
    ("Qwen3-30B-A3B", "ktransformers", "ktransformers", {"gpu_experts": 0, "stream_above": 30}),
    ("Qwen3-30B-A3B", "freetoken", "freetoken", {"expert_slots": 21, "miss_mode": "cpu"}),
    ("Qwen3-30B-A3B", "freetoken", "freetoken", {"miss_mode": "offload"}),
    ("Qwen3-30B-A3B", "freetoken", "freetoken", {}),
    ("Qwen3-0.6B", "ollama", "llama-cpp", {"ngl": 11}),
    ("Qwen3-14B", "lm-studio", "llama-cpp", {"ngl": 21}),
    ("Qwen3-30B-A3B", "lm-studio", "llama-cpp", {"ngl": 49, "n_cpu_moe": 20}),
    ("Qwen3-30B-A3B", "exllamav3", "llama-cpp", {"ngl": 49, "n_cpu_moe": 20}),
    ("Qwen3-30B-A3B", "exllamav3", "llama-cpp", {"ngl": 49, "override_tensor": r"blk\.(7|2[0-9])\.ffn_.*exps=CPU"}),
]


@pytest.mark.parametrize(("model", "engine", "strategy", "options"), one_in(2, CASES))
def test_settings_of_other_engines_are_read_as_they_were_written(
    model: str, engine: str, strategy: str, options: dict[str, Any]
) -> None:
    plain = "f16" if model != "Qwen3-30B-A3B" else "q4_0"
    fitting = "a4000-7950x" if engine != "accelerate" or model != "Qwen3-14B" else "rtx3090-5950x"
    request = asked(model, fitting, strategy, plain, context=256, options=options)
    check(request, engine, exact=plain == "f16" or engine in ("ollama", "lm-studio"))


@cache
def planned(model: str, strategy: str) -> tuple[PlanRequest, Plan]:
    """Plan once for all engines."""
    request = asked(model, "rtx4060-laptop", strategy, "q4_0")
    return request, decide(request).plan


@pytest.mark.parametrize("engine", ENGINES)
def test_any_plan_is_written_or_refused_with_a_remedy(engine: str) -> None:
    """What cannot be said is named, and what it costs is predicted."""
    for model, strategy in (("Qwen3-8B", "flexgen"), ("Qwen3-30B-A3B", "expert-split")):
        request, plan = planned(model, strategy)
        try:
            content = settings_of(plan, engine, request)
        except UsageError as error:
            assert error.remedy
            continue
        assert content.differences and all(lost.what and lost.instead for lost in content.differences)
        assert content.nearest is not None or content.unpriced


def test_a_plan_alone_is_enough() -> None:
    content = emit(decide(asked("Qwen3-0.6B", "a4000-7950x", "cpu-only")).plan, "llama.cpp")
    assert content.text.startswith("llama-server -ngl 0 ") and content.nearest is not None
    with pytest.raises(UsageError, match="no such engine"):
        emit({"model": "Qwen3-0.6B", "hardware": "a4000-7950x"}, "llamacpp")


@given(st.sets(st.integers(0, 130), min_size=1))
def test_numbers_become_a_pattern_of_these_alone(numbers: set[int]) -> None:
    pattern = tensor_pattern(rf"^blk\.{numbers_pattern(sorted(numbers))}\.x$")
    assert {number for number in range(140) if pattern.is_in(f"blk.{number}.x")} == numbers


HOME: Any = {"gpu": "RTX 4060", "cpu": "Ryzen 5 5600X", "ram": 32 * 10**9}


@pytest.mark.parametrize(
    ("model", "strategy", "engine"),
    [("Qwen3-30B-A3B", "llama-cpp", "ollama"), ("Qwen3-14B", "best", "llama.cpp"), ("Qwen3-14B", "best", "lm-studio")],
)
def test_settings_that_do_not_fit_or_lose_much_are_replaced_by_those_of_the_fastest_plan_of_the_engine(
    model: str, strategy: str, engine: str
) -> None:
    """Ollama has no place for experts apart from their layers; llama.cpp moves no weights to the accelerator in steps
    while others stay."""
    request = asked(model, HOME, strategy, "q4_k_m", context=8192)
    content = settings_of(decide(request).plan, engine, request)
    assert content.unpriced is None and content.nearest is not None
    assert content.differences[0].what.startswith("the plan of ")
    own = asked(model, HOME, "llama-cpp", "q4_k_m", context=8192, options={"n_cpu_moe": 0} if "A3B" in model else {})
    assert content.nearest.speed == planned_for(decide(own).plan).speed


@pytest.mark.parametrize("mixture", NAMED_MIXES)
def test_the_name_of_a_file_says_the_mixture_that_it_is_in(mixture: str) -> None:
    model = "gpt-oss-20b" if mixture == "mxfp4" else "Qwen3-0.6B"
    request = asked(model, "a4000-7950x", "llama-cpp", mixture)
    text = settings_of(decide(request).plan, "llama.cpp").text
    named = asked(model, "a4000-7950x", "llama-cpp", settings_format(text, model) or "")
    assert (named.weights, named.formats) == (request.weights, request.formats), text


def test_a_model_that_an_engine_cannot_divide_is_refused() -> None:
    for engine in ("ktransformers", "freetoken"):
        with pytest.raises(HelmError, match="has none"):
            emit({"model": "Qwen3-0.6B", "hardware": "a4000-7950x", "strategy": "layer-split"}, engine)


def test_a_plan_that_other_software_runs_is_priced_as_its_engine_runs_it() -> None:
    """The default recommends llama.cpp's placement by our executor's speed, which its own command does not have."""
    machine = {"gpu": "2x RTX 3060", "cpu": "AMD Ryzen 9 5950X", "ram": 64 * 2**30}
    request = asked("Qwen3-32B", machine, "best", "q4_0", prompt_tokens=128, output_tokens=128)
    made = decide(request).plan
    assert made.strategy.name == "llama-cpp" and made.strategy.options["same_software"] is True
    content = settings_of(made, "llama.cpp", request)
    assert content.nearest is not None and content.nearest.speed != content.plan.speed
    assert content.nearest.speed == reading_of(content.text, request).yours.speed


def test_parts_of_layers_are_said_as_lm_studio_can() -> None:
    """A plan of patterns, which it has no place for, does not fit without them."""
    machine = {"gpu": "2x RTX 3090", "cpu": "Ryzen 9 5950X", "ram": 128 * 2**30}
    request = asked("gpt-oss-120b", machine, "llama-cpp", "mxfp4", context=16384)
    content = settings_of(decide(request).plan, "lm-studio", request)
    assert content.unpriced is None and '"numCpuExpertLayersRatio": "max"' in content.text


@pytest.mark.parametrize("engine", ["accelerate", "deepspeed"])
def test_quantised_caches_are_said_not_to_be_there(engine: str) -> None:
    strategy = {"accelerate": "accelerate", "deepspeed": "zero-inference"}[engine]
    request = asked("Qwen3-8B", "rtx3090-5950x", strategy, "f16", kv_format="q8_0", context=4096)
    content = settings_of(decide(request).plan, engine, request)
    assert "caches are in q8_0" in [difference.what for difference in content.differences]
    assert content.nearest is not None
    kept = [sum(use.kv for use in one.memory) for one in (content.plan, content.nearest)]
    assert kept[1] > 1.8 * kept[0]
