"""How processors attend under llama.cpp: in one operation or in steps, whichever is predicted to be faster."""

from typing import Any

import pytest

from helmsman.library import compose_hardware, emit, plan, read_settings
from helmsman.planner.decision import Decision

HOST = compose_hardware("AMD Ryzen 9 5950X", 64 * 10**9)
LONG = {"prompt_tokens": 1024, "output_tokens": 15000, "context": 16384}


def planned(model: str = "Qwen3-0.6B", hardware: Any = HOST, **more: Any) -> Decision:
    return plan({"model": model, "hardware": hardware, "engine": "llama.cpp", "format": "q4_0", **more})


def test_long_caches_of_shared_heads_are_read_once() -> None:
    """In steps, heads that share keys read them together: `-fa off` is written, and read again as the same plan."""
    best, whole = planned(**LONG), planned(**LONG, options={"flash_attn": "on"})
    assert best.plan.strategy.options["flash_attn"] == "off" and best.seconds < 0.9 * whole.seconds
    command = emit(best, "llama.cpp").text
    assert " -fa off " in command
    question = {"model": "Qwen3-0.6B", "hardware": HOST, "format": "q4_0", "strategy": "llama-cpp", **LONG}
    ours, theirs = (read_settings(text, question) for text in (command, command.replace("-fa off", "-fa on")))
    assert ours.yours.speed.request.mid == pytest.approx(best.seconds) and "-fa off" in ours.placed
    assert theirs.yours.speed.request.mid == pytest.approx(whole.seconds)


@pytest.mark.parametrize(
    "more",
    [
        {"prompt_tokens": 32, "output_tokens": 32, "context": 64},
        {**LONG, "kv_format": "q8_0"},
        {**LONG, "hardware": "rtx4060-laptop"},
    ],
)
def test_elsewhere_attention_is_as_builds_have_it(more: dict[str, Any]) -> None:
    """Short caches, those that are quantised, and accelerators."""
    decision = planned(**more)
    assert "flash_attn" not in decision.plan.strategy.options
    assert " -fa on " in emit(decision, "llama.cpp").text
