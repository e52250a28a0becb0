"""One run of an engine on a machine: what it says of the constants, and what plans for the machine predict then."""

from math import log
from typing import Any

import pytest

from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.engine_calibration import calibrated, uncalibrated
from helmsman.library import calibrate, plan
from helmsman.planner.strategies.engines.calibration import calibrated_record, parts_of
from helmsman.planner.strategies.engines.kernels import EngineBuild
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan

MACHINE = compose("RTX 4090", "AMD Ryzen 9 7950X", 64 * GIB, None)
BUILD = EngineBuild("llama.cpp", "2025")


def made(machine: Hardware = MACHINE, model: str = "Llama-3.1-8B", fmt: str = "q4_k_m", **more: Any) -> Plan:
    asked = {"model": model, "hardware": machine, "format": fmt, "prompt_tokens": 512, "output_tokens": 128}
    return plan({**asked, "engine": "llama.cpp", "options": {"build_era": "2025"}, **more}).plan


def test_a_run_moves_what_explains_most_of_it_and_is_least_certain() -> None:
    before = uncalibrated({"share": 0.1, "overhead": 0.3})
    parts = {"share": 8e-3, "overhead": 2e-3}
    after = calibrated(before, parts, 1.1 * 10e-3)
    assert after.predict(parts)[0] == pytest.approx(11e-3, rel=0.02)
    assert after.factor("share") > 1.0 and after.factor("overhead") > 1.0
    assert after.predict(parts)[1] < before.predict(parts)[1] / 2
    other = {"share": 20e-3, "overhead": 1e-3}
    assert before.predict(other)[1] > after.predict(other)[1] > after.predict(parts)[1]
    again = calibrated(after, other, after.predict(other)[0])
    assert again.predict(other)[1] < after.predict(other)[1]
    assert log(again.factor("share") / after.factor("share")) == pytest.approx(0.0, abs=1e-6)


def test_parts_of_a_plan_are_its_seconds() -> None:
    planned = made()
    for phase in PHASES:
        seconds = getattr(planned.predicted, phase).seconds.mid
        assert sum(parts_of(planned, phase).values()) == pytest.approx(seconds, rel=0.01)


def test_plans_on_a_calibrated_record_are_as_fast_as_the_run_and_more_certain() -> None:
    planned = made()
    said = planned.predicted.tokens_per_second
    record = calibrated_record(MACHINE, planned, BUILD, {"decode": 0.85 * said.mid, "prefill": 5000.0})
    assert record.sources["llama.cpp"].kind == "measured"
    again = Hardware.model_validate_json(record.to_json())
    now = made(again)
    assert now.predicted.tokens_per_second.mid == pytest.approx(0.85 * said.mid, rel=0.03)
    assert 512 / now.predicted.prefill.seconds.mid == pytest.approx(5000.0, rel=0.1)
    width = now.predicted.tokens_per_second
    assert width.high / width.low < said.high / said.low
    for model, fmt in (("Qwen3-14B", "q4_k_m"), ("Llama-3.1-8B", "f16")):
        bare, known = (made(machine, model, fmt).predicted.decode.seconds.mid for machine in (MACHINE, again))
        assert 1.05 < known / bare < 1.25


def test_what_says_nothing_of_the_engine_is_refused() -> None:
    ours = plan({"model": "Qwen3-0.6B", "hardware": MACHINE, "strategy": "layer-split"}).plan
    with pytest.raises(UsageError, match="not priced"):
        calibrated_record(MACHINE, ours, BUILD, {"decode": 10.0})
    with pytest.raises(UsageError, match="not a speed"):
        calibrated_record(MACHINE, made(), BUILD, {"decode": 0.0})


def test_the_library_calibrates_a_question() -> None:
    asked = {"model": "Llama-3.1-8B", "hardware": MACHINE, "format": "q4_k_m", "engine": "llama.cpp"}
    record = calibrate(asked, decode=100.0)
    assert plan({**asked, "hardware": record}).plan.predicted.tokens_per_second.mid == pytest.approx(100.0, rel=0.05)
    with pytest.raises(UsageError, match="nothing was measured"):
        calibrate(asked)
    with pytest.raises(UsageError, match="no constants to calibrate"):
        calibrate({**asked, "engine": "vllm", "format": "f16"}, decode=10.0)
