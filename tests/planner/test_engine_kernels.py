"""Engines' own constants: llama.cpp's plans are as fast as its kernels are, by backend, build and device."""

from itertools import pairwise
from typing import Any

import pytest

from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.edits import AS_IT_IS, edited
from helmsman.hwdb.engine_classes import engine_class, half_ratio, int8_ratio, lineage
from helmsman.hwdb.engine_constants import FAMILIES, constants_of, engine_table, family_of, latent_times, size_scale
from helmsman.library import plan
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan


def made(gpu: str = "RTX A6000", model: str = "Llama-3.1-8B", **question: Any) -> Plan:
    machine = {"gpu": gpu, "cpu": "AMD Ryzen 9 7950X", "ram": 64 * GIB}
    asked = {"model": model, "hardware": machine, "format": "q4_k_m", "prompt_tokens": 512, "engine": "llama.cpp"}
    return plan({**asked, **question}).plan


def test_a_step_is_overhead_beside_bytes() -> None:
    known = constants_of("llama.cpp", "RTX A6000", "workstation-ampere", "cuda", "2024", False)
    assert known is not None and known.node.endswith("/RTX A6000")
    planned = made(options={"build_era": "2024", "flash_attn": "off"}, format="f16").predicted.decode
    on_gpu = [term for term in planned.terms if term.resource == "cuda" and term.bytes]
    read = sum(term.bytes for term in on_gpu if term.op not in ("attention", "append", "norm1", "norm2", "final_norm"))
    seconds = read / (768e9 * known.shares["16"]) + 355 * known.overhead
    assert planned.seconds.mid == pytest.approx(seconds, rel=0.02)
    apart = planned.seconds.high / planned.seconds.low
    assert 1.15 < apart < 1.45, "the spread of a prediction, not of every constant on its own"


def test_prompts_attend_at_one_rate_whatever_the_cache_is_in() -> None:
    """Keys and values become f16 before they are multiplied: 8-bit ones at the rate of plain weights, not of codes."""
    rates = {}
    for fmt in ("f16", "q8_0"):
        planned = made("RTX 3090", prompt_tokens=4096, prefix_tokens=3584, kv_format=fmt).predicted.prefill
        [term] = [term for term in planned.terms if (term.op, term.resource) == ("attention", "cuda")]
        rates[fmt] = term.flops / term.seconds.mid
    assert rates["q8_0"] == pytest.approx(rates["f16"], rel=1e-6)


def test_builds_backends_and_attention_differ() -> None:
    seconds = {
        era: made("RTX 4090", options={"build_era": era}).predicted.decode.seconds for era in ("2023", "2024", "2025")
    }
    assert seconds["2025"].mid < seconds["2024"].mid
    unknown = made("RTX 4090").predicted.decode.seconds
    assert seconds["2025"].mid < unknown.mid < seconds["2024"].mid
    assert unknown.high / unknown.low > seconds["2025"].high / seconds["2025"].low
    vulkan = made("RTX 4090", options={"backend": "vulkan"}).predicted.decode.seconds
    assert vulkan.high / vulkan.low > unknown.high / unknown.low
    off, on = (made(options={"flash_attn": to}).predicted.prefill.seconds.mid for to in ("off", "on"))
    assert on < off


def test_the_engine_names_its_strategy() -> None:
    planned = made(options={"build_era": "2025"})
    assert planned.strategy.name == "llama-cpp" and planned.strategy.options["build_era"] == "2025"
    assert planned.hardware.sources["llama.cpp"].kind == "fitted"
    assert made(strategy="llama-cpp").predicted == made().predicted
    with pytest.raises(UsageError, match="cannot carry out"):
        made(strategy="op-split")
    with pytest.raises(UsageError, match="no engine"):
        made(engine="llama")


@pytest.mark.parametrize(("gpu", "backend"), [("RTX 4090", "rocm"), ("RX 7900 XTX", "cuda")])
def test_a_backend_that_a_device_has_not_is_refused(gpu: str, backend: str) -> None:
    with pytest.raises(UsageError, match="no such backend"):
        made(gpu, options={"backend": backend})


def test_placements_alone_are_compared_with_the_record() -> None:
    same = made(options={"same_software": True}, engine=None, strategy="llama-cpp")
    assert "llama.cpp" not in same.hardware.sources


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp"])
def test_edits_of_rates_edit_what_kernels_reach_of_them(engine: str) -> None:
    bare = compose("RTX 4090", "AMD Ryzen 9 7950X", 64 * GIB, None)
    seconds = {}
    for text in (AS_IT_IS, "vram_bw=x2", "gpu_flops=x2", "vram_bw=x2,gpu_flops=x2"):
        question = {"hardware": edited(bare, text), "engine": engine, "format": "f16", "prompt_tokens": 4096}
        predicted = made(**question).predicted
        seconds[text] = predicted.decode.seconds.mid, predicted.prefill.seconds.mid
    (step, prompt), (faster, _) = seconds[AS_IT_IS], seconds["vram_bw=x2"]
    assert 1.7 < step / faster <= 2.0 and 1.5 < prompt / seconds["gpu_flops=x2"][1] <= 2.0
    assert seconds["gpu_flops=x2"][0] == pytest.approx(step, rel=0.03)
    assert seconds["vram_bw=x2,gpu_flops=x2"][1] <= seconds["gpu_flops=x2"][1]


def test_scores_that_are_written_take_as_long_as_the_edited_memory_says() -> None:
    bare = compose("RTX 4090", "AMD Ryzen 9 7950X", 64 * GIB, None)
    took = {}
    for text in (AS_IT_IS, "gpu_flops=x2", "vram_bw=x2"):
        off = made(hardware=edited(bare, text), options={"flash_attn": "off"}, prompt_tokens=4096)
        took[text] = sum(term.seconds.mid for term in off.predicted.prefill.terms if term.op == "attention")
    assert took["gpu_flops=x2"] == pytest.approx(took[AS_IT_IS])
    assert took["vram_bw=x2"] < 0.6 * took[AS_IT_IS]


def test_a_device_leans_on_its_class_its_kind_and_the_backend() -> None:
    spread = []
    for product, known in (("RTX A6000", "workstation-ampere"), ("RTX A9", "workstation-ampere"), ("RTX A9", None)):
        found = constants_of("llama.cpp", product, known, "cuda", "2025")
        assert found is not None
        spread.append(found.decode)
    assert all(near < far for near, far in pairwise(spread))
    assert constants_of("llama.cpp", "RTX A9", None, "sycl") is None
    with pytest.raises(UsageError, match="no constants"):
        constants_of("another", "RTX A9", None, "cuda")


def test_processors_have_shares_of_their_own() -> None:
    planned = made(options={"ngl": 0, "build_era": "2025"})
    known = constants_of("llama.cpp", "AMD Ryzen 9 7950X", "x86-desktop-ddr5", "cpu", "2025")
    assert known is not None
    host = planned.hardware.device("cpu")
    assert host.overhead is not None and host.overhead.value == known.overhead
    shares = {c.format: c.share[0].value for c in host.efficiency if (c.bound, c.op) == ("memory", "linear")}
    assert 0.5 < shares["*"] < known.shares["4"] < 1.5, "values are read, and then unpacked"
    alone, beside = (p.predicted.decode.seconds for p in (planned, made(options={"build_era": "2025"})))
    assert alone.high / alone.low > beside.high / beside.low, "processors differ more than GPUs"
    parts = {"cpu": "2x AMD EPYC 9355", "ram": 512 * GIB}
    both = plan({"model": "Llama-3.1-8B", "hardware": parts, "format": "q8_0", "engine": "llama.cpp"}).plan
    one = plan({"model": "Llama-3.1-8B", "hardware": {**parts, "cpu": "AMD EPYC 9355"}, "format": "q8_0",
                "engine": "llama.cpp"}).plan  # fmt: skip
    assert both.predicted.decode.seconds.mid > 0.8 * one.predicted.decode.seconds.mid, "twice the reads, half the share"


def test_classes_say_what_prompts_are_multiplied_by() -> None:
    assert engine_class("Tesla P100 PCIe 16GB", "pascal") == "pascal-hbm"
    assert engine_class("Apple M2", "apple-cpu") == "apple-cpu"
    assert int8_ratio("RTX 2080 Ti", "turing") == 4.0 and int8_ratio("T4", "turing") == 2.0
    assert half_ratio("RTX 4090", "geforce-ada") == 2.0 and half_ratio("GTX 1080", "pascal") == 1.0
    assert lineage("RTX 4090", "geforce-ada", "cuda")[0] == "cuda/gddr/geforce-ada/RTX 4090"
    assert [family_of(fmt) for fmt in ("bf16", "q8_0", "q5_k", "mxfp4", "iq3_s")] == list(FAMILIES)


def test_the_table_says_where_every_node_is_from() -> None:
    table = engine_table("llama.cpp")
    for name, node in table["nodes"].items():
        assert node["rows"] == len(node["of"]) if name.count("/") >= 2 else node["rows"] > 0
        assert set(node["shares"]) == set(FAMILIES) and 0.0 < node["spread"]["decode"] < 1.0
        assert name.split("/")[0] in table["backends"]


def test_power_and_expanded_weights_bound_prompts() -> None:
    reached = {
        gpu: constants_of("llama.cpp", gpu, "workstation-ada", "cuda", "2025")
        for gpu in ("RTX 4000 SFF Ada 20GB", "RTX 4000 Ada 20GB")
    }
    small, large = reached.values()
    assert small is not None and large is not None
    assert small.prompts["4"] < 0.95 * large.prompts["4"], "70 W for as many operations as a card with 130 W has"
    older = constants_of("llama.cpp", "RTX 4090", "geforce-ada", "cuda", "2024")
    newer = constants_of("llama.cpp", "RTX 4090", "geforce-ada", "cuda", "2025")
    assert older is not None and newer is not None
    assert older.prompts["4"] * 660.8e12 < older.prompts["16"] * 330.4e12, "expanded to FP16 first"
    assert newer.prompts["4"] > 1.2 * older.prompts["4"]


def test_prompts_of_large_models_reach_more_where_others_measured_so() -> None:
    def of(gpu: str, model_class: str, scale: float) -> Any:
        known = constants_of("llama.cpp", gpu, model_class, "cuda", "2025", scale=scale)
        assert known is not None
        return known

    ampere, ada = (("RTX A6000", "workstation-ampere"), ("RTX 6000 Ada 48GB", "workstation-ada"))
    usual, large = (size_scale(size) for size in (7.5e9, 70e9))
    for gpu, faster in ((ampere, True), (ada, False)):
        eight, seventy = of(*gpu, usual), of(*gpu, large)
        assert (seventy.prompts["4"] > eight.prompts["4"]) == faster
        assert seventy.prompt > eight.prompt
    assert of("RTX 4070", "geforce-ada", large).prompt > 1.3 * of("RTX 4070", "geforce-ada", usual).prompt


def test_one_token_over_latent_vectors_reaches_less_than_prompts_do() -> None:
    """All heads share what is read, so that steps are bound by arithmetic: on one card a long context costs as much as
    open rows of DeepSeek say, 0.3 to 0.8 ms for a thousand tokens."""
    times, _ = latent_times("llama.cpp") or (1.0, 0.0)
    known = {"model": "DeepSeek-V3", "options": {"build_era": "2025", "n_cpu_moe": 61}}
    machine = {"gpu": "RTX 4090", "cpu": "AMD EPYC 9355", "ram": 768 * GIB}
    steps = [
        plan({**known, "hardware": machine, "format": "q4_k_m", "engine": "llama.cpp", "prompt_tokens": tokens}).plan
        for tokens in (1000, 29000)
    ]
    curves = [c for c in steps[0].hardware.device("cuda").efficiency if (c.bound, c.op) == ("compute", "attention")]
    assert curves[0].share[0].value == pytest.approx(curves[0].share[-1].value / times)
    short, long = (step.predicted.decode.seconds.mid for step in steps)
    assert 0.3e-3 < (long - short) / 28 < 0.8e-3


def test_caches_in_codes_are_read_by_every_head_of_a_group() -> None:
    long = {"prompt_tokens": 16384, "output_tokens": 128, "options": {"build_era": "2025"}}
    attention = {}
    for kv in ("f16", "q8_0"):
        terms = made(kv_format=kv, **long).predicted.decode.terms
        attention[kv] = next(term.seconds.mid for term in terms if term.op == "attention")
    assert 1.5 < attention["q8_0"] / attention["f16"] < 4.0, "half the bytes, four heads that share keys"


def test_a_mixture_has_the_share_of_each_of_its_formats() -> None:
    device = made(options={"build_era": "2025"}).hardware.device("cuda")
    known = constants_of("llama.cpp", "RTX A6000", "workstation-ampere", "cuda", "2025")
    assert known is not None
    shares = {c.format: c.share[0].value for c in device.efficiency if (c.bound, c.op) == ("memory", "linear")}
    assert shares == {"*": known.shares["4"], "q6_k": known.shares["6"]}


def test_processors_read_and_unpack_weights() -> None:
    speeds = {}
    for fmt in ("q8_0", "q4_0", "iq3_s"):
        machine = {"cpu": "AMD Ryzen 5 3600", "ram": 64 * GIB}
        planned = plan({"model": "Llama-3.1-8B", "hardware": machine, "format": fmt, "engine": "llama.cpp"}).plan
        speeds[fmt] = 1.0 / planned.predicted.decode.seconds.mid
    assert speeds["q4_0"] > 1.4 * speeds["q8_0"] and speeds["iq3_s"] < 0.9 * speeds["q4_0"], (
        "fewer bytes, more to unpack"
    )


def test_threads_of_one_socket_read_its_memory() -> None:
    speeds = {}
    for threads in (32, 64):
        question = {"model": "Llama-3.1-8B", "hardware": {"cpu": "2x AMD EPYC 9355", "ram": 512 * GIB}}
        options = {"options": {"threads": threads}, "format": "q8_0", "engine": "llama.cpp"}
        speeds[threads] = 1.0 / plan({**question, **options}).plan.predicted.decode.seconds.mid
    assert 1.3 < speeds[64] / speeds[32] <= 2.0
