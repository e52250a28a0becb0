"""What a refusal names before more memory, and the longest contexts: each is asked again."""

import re
from pathlib import Path

import pytest
from daily import one_in
from fewer_blocks import fewer_blocks

import helmsman
from helmsman.planner.fits import fits, longest_context, would_fit
from helmsman.planner.read_request import request_from
from helmsman.planner.registry import OF_DENSE, RECOMMENDED
from helmsman.schemas.errors import InfeasibleError

SMALL = {"model": "opt-125m", "hardware": "rtx4060-laptop", "prompt_tokens": 16, "output_tokens": 4}
SLOW = ("flexgen-lp", "twinpilots", "layerwise-map", "accelerate", "llama-cpp", RECOMMENDED)
"""Others have what they search in common with one of them: offloading of blocks, splits by layers."""


def refused(**question: object) -> str:
    with pytest.raises(InfeasibleError) as refusal:
        helmsman.plan(question)
    return str(refusal.value.remedy)


@pytest.mark.parametrize(
    "strategy",
    ["vllm", "weights-on-host", pytest.param("op-split", marks=pytest.mark.nightly), "cpu-only", "zero-inference"],
)
def test_a_smaller_format_comes_first_and_does_fit(strategy: str) -> None:
    question = {"model": "Qwen3-8B", "hardware": "rtx4060-laptop", "strategy": strategy}
    fmt = re.match(r"it fits with `format` (\w+).*; else .* more (?:in|on) ", refused(**question))[1]
    assert helmsman.plan({**question, "format": fmt}).plan.label
    larger = {"q4_k": "q8_0", "q8_0": "f16"}[fmt]
    assert not fits(request_from({**question, "format": larger}))


def test_a_format_whose_blocks_have_whole_rows_is_offered() -> None:
    """Rows of gpt-oss are 2880 values long, which are no whole blocks of q4_k; it was released in mxfp4."""
    question = {"model": "gpt-oss-120b", "hardware": "rtx4090-7950x", "ram_available": 64 * 10**9, "format": "f16"}
    assert refused(**question).startswith("it fits with `format` q4_0")
    machine = {"gpu": "RTX 4090", "cpu": "AMD EPYC 7763", "ram": 448 * 2**30}
    assert refused(model="DeepSeek-V3", hardware=machine).startswith("it fits with `format` q4_0")


def test_caches_and_contexts_come_before_memory() -> None:
    question = {
        "model": "Qwen3-8B", "hardware": "rtx4060-laptop", "strategy": "vllm", "format": "q4_k", "prompt_tokens": 16,
        "output_tokens": 8, "batch": 4, "context": 6000,
    }  # fmt: skip
    remedy = refused(**question)
    context = int(re.search(r"`context` (\d+)", remedy)[1])
    assert helmsman.plan({**question, "context": context}).plan.label
    assert not fits(request_from({**question, "context": context + 1}))
    assert ("`kv_format` q8_0" in remedy) == fits(request_from({**question, "kv_format": "q8_0"}))


def test_another_gpu_is_named_where_the_strategy_uses_it() -> None:
    question = {"model": "Llama-3.1-70B", "hardware": "rtx3090-5950x", "ram_available": 4 * 10**9, "format": "q4_k"}
    assert re.search(r"(with|or) another ", refused(**question, strategy="optimal"))
    assert "another" not in refused(**question, strategy="layer-split")


def test_what_no_change_helps_has_the_memory_alone() -> None:
    remedy = refused(model="Llama-3.1-405B", hardware="rtx4060-laptop", strategy="layer-split")
    assert "it fits with" not in remedy and "more in" in remedy


@pytest.mark.parametrize(
    "strategy",
    one_in(
        2,
        [pytest.param(name, marks=[pytest.mark.nightly] if name in SLOW else []) for name in (RECOMMENDED, *OF_DENSE)],
    ),
)
def test_the_longest_context_is_the_last_that_fits(strategy: str, tmp_path: Path) -> None:
    """Memory is made so small that less than the model's context fits; vLLM keeps some of it for itself."""
    question = {**SMALL, "model": fewer_blocks(tmp_path, "opt-125m", 3), "strategy": strategy, "batch": 64}
    kept = 640 * 10**6 if strategy == "vllm" else 0
    small = {"ram_available": 235 * 10**6, "vram_available": 235 * 10**6 + kept}
    request = request_from({**question, **small})
    longest = longest_context(request)
    assert 20 <= longest <= request.model.max_context
    assert fits(request.sized(context=longest, output_tokens=1))
    if longest < request.model.max_context:
        assert not fits(request.sized(context=longest + 1, output_tokens=1))


def test_a_request_that_is_refused_would_not_fit() -> None:
    assert not would_fit(request_from({**SMALL, "hardware": "m1-16gb", "strategy": "vllm"}))
