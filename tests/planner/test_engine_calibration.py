"""Runs of an engine on a machine: what they say of the constants, and what plans for the machine predict then."""

from math import exp, log
from typing import Any

import numpy as np
import pytest

from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.engine_calibration import Factors, Linearised, factors_in, updated
from helmsman.library import calibrate, plan
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan

MACHINE = compose("RTX 4090", "AMD Ryzen 9 7950X", 64 * GIB, None)
ASKED = {"model": "Llama-3.1-8B", "hardware": MACHINE, "format": "q4_k", "engine": "llama.cpp",
         "prompt_tokens": 512, "output_tokens": 128, "options": {"build_era": "2025"}}  # fmt: skip


def made(machine: Hardware = MACHINE, **more: Any) -> Plan:
    return plan({**ASKED, "hardware": machine, **more}).plan


def sums(*rows: dict[str, float]) -> Any:
    """Return predictions of runs that are sums of parts, each times its factor."""

    def predict(at: Factors) -> Linearised:
        seconds = np.array([[row.get(n, 0.0) * exp(m) for n, m in zip(at.names, at.mean, strict=True)] for row in rows])
        total = seconds.sum(axis=1)
        return Linearised(np.log(total), seconds / total[:, None])

    return predict


def test_a_run_moves_what_explains_most_of_it_and_is_least_certain() -> None:
    before = Factors(("share", "overhead"), np.zeros(2), np.diag([0.01, 0.09]))
    run = {"share": 8e-3, "overhead": 2e-3}
    after = updated(before, [11e-3], sums(run)).factors
    assert 1.0 < after.factor("share") < after.factor("overhead")
    assert exp(sums(run)(after).logarithms[0]) == pytest.approx(11e-3, rel=0.02)
    assert after.spread({"share": 0.8, "overhead": 0.2}) < before.spread({"share": 0.8, "overhead": 0.2}) / 2


def test_runs_after_each_other_say_what_they_say_together_and_each_is_judged_by_the_others() -> None:
    before = Factors(("share", "overhead"), np.zeros(2), np.diag([0.01, 0.09]))
    runs = {"share": 8e-3, "overhead": 1e-3}, {"share": 1e-3, "overhead": 5e-3}
    together = updated(before, [9e-3, 6e-3], sums(*runs))
    first = updated(before, [9e-3], sums(runs[0])).factors
    second = updated(first, [6e-3], sums(runs[1])).factors
    assert second.mean == pytest.approx(together.factors.mean, abs=2e-3)
    alone = float(sums(runs[1])(first).logarithms[0])
    assert together.apart[1] == pytest.approx(log(6e-3) - alone, abs=5e-3)
    assert updated(before, [9e-3], sums(runs[0])).apart == (None,)


def test_plans_on_a_calibrated_record_are_as_fast_as_the_run_and_more_certain() -> None:
    said = made().predicted.tokens_per_second
    record = calibrate(ASKED, decode=0.9 * said.mid, prefill=0.9 * 512 / made().predicted.prefill.seconds.mid).hardware
    again = Hardware.model_validate_json(record.to_json())
    now = made(again)
    assert now.predicted.tokens_per_second.mid == pytest.approx(0.9 * said.mid, rel=0.05)
    assert now.predicted.prefill.seconds.mid == pytest.approx(made().predicted.prefill.seconds.mid / 0.9, rel=0.03)
    width = now.predicted.tokens_per_second
    assert width.high / width.low < said.high / said.low
    bare, known = (made(machine, format="f16").predicted.decode.seconds.mid for machine in (MACHINE, again))
    assert 1.01 < known / bare < 1.15


def test_prompts_of_another_size_are_less_certain_after_a_run() -> None:
    said = 512 / made().predicted.prefill.seconds.mid
    record = calibrate(ASKED, prefill=0.8 * said).hardware
    widths = {}
    for model in ("Llama-3.1-8B", "Qwen3-32B"):
        seconds = made(record, model=model).predicted.prefill.seconds
        widths[model] = seconds.high / seconds.low
    assert widths["Llama-3.1-8B"] < 1.3 and widths["Qwen3-32B"] > 1.1 * widths["Llama-3.1-8B"]


def test_a_calibrated_record_changes_plans_of_its_engine_alone() -> None:
    record = calibrate(ASKED, decode=100.0).hardware
    ours = {"model": "Qwen3-0.6B", "strategy": "layer-split"}
    first, second = (plan({**ours, "hardware": machine}).plan for machine in (MACHINE, record))
    assert first.predicted.decode == second.predicted.decode
    assert made(record, options={"build_era": "2025", "backend": "vulkan"}).predicted.decode == (
        made(options={"build_era": "2025", "backend": "vulkan"}).predicted.decode
    )


def test_the_report_says_how_far_predictions_moved_and_narrowed() -> None:
    said = 0.9 * made().predicted.tokens_per_second.mid
    calibrated = calibrate(ASKED, decode=said)
    report, row = calibrated.report, calibrated.report.runs[0]
    assert row.run.value == said and row.prediction.after.mid == pytest.approx(said, rel=0.05)
    assert row.prediction.before.mid > row.prediction.after.mid and row.from_others is None
    assert report.after < report.before
    assert {one.format for one in report.others} == {"q4_k_m", "q8_0", "f16"}
    twice = calibrate({**ASKED, "hardware": calibrated.hardware}, decode=said)
    (known,) = twice.hardware.calibrations
    assert len(known.runs) == 2
    spread = {"RTX 4090:share.4": 1.0}
    assert factors_in(known).spread(spread) < factors_in(calibrated.hardware.calibrations[0]).spread(spread)


def test_engines_without_a_table_are_calibrated_by_the_figures_of_their_classes() -> None:
    asked = {"model": "Llama-3.1-8B", "hardware": MACHINE, "engine": "vllm", "format": "f16"}
    said = plan(asked).plan.predicted.tokens_per_second.mid
    record = calibrate(asked, decode=0.9 * said).hardware
    assert plan({**asked, "hardware": record}).plan.predicted.tokens_per_second.mid == pytest.approx(
        0.9 * said, rel=0.05
    )


@pytest.mark.parametrize("gpu", ["L40S", "H100 SXM 80GB"])
@pytest.mark.parametrize(("tokens", "times"), [(1000, 0.5), (1000, 1.2), (128, 0.5)])
def test_prompts_of_vllm_move_prompts_and_leave_steps(gpu: str, tokens: int, times: float) -> None:
    """Products that read their weights for most of their time are no slower where arithmetic is."""
    machine = compose(gpu, "AMD EPYC 7742", 64 * GIB, None)
    question = {
        "model": "Llama-3.1-8B",
        "hardware": machine,
        "engine": "vllm",
        "format": "f16",
        "prompt_tokens": tokens,
    }
    before = plan(question).plan.predicted
    said = times * tokens / before.prefill.seconds.mid
    record = calibrate(question, prefill=said).hardware
    after = plan({**question, "hardware": record}).plan.predicted
    assert tokens / after.prefill.seconds.mid == pytest.approx(said, rel=0.1)
    assert after.decode.seconds.mid == pytest.approx(before.decode.seconds.mid, rel=0.02)
    steps = [
        plan({**question, "hardware": record, "batch": batch, "prompt_tokens": 8}).plan.predicted.decode.seconds.mid
        for batch in (1, 8, 16, 32, 64, 128, 256)
    ]
    assert steps == sorted(steps)


def test_both_phases_of_vllm_are_as_fast_as_they_ran() -> None:
    machine = compose("L40S", "AMD EPYC 7742", 64 * GIB, None)
    question = {"model": "Llama-3.1-8B", "hardware": machine, "engine": "vllm", "format": "f16", "prompt_tokens": 1000}
    record = calibrate(question, decode=45.0, prefill=8000.0).hardware
    after = plan({**question, "hardware": record}).plan.predicted
    assert after.tokens_per_second.mid == pytest.approx(45.0, rel=0.03)
    assert 1000 / after.prefill.seconds.mid == pytest.approx(8000.0, rel=0.1)


def test_steps_of_many_sequences_move_what_they_read() -> None:
    """Of joined products reading is a part at any number of tokens, of experts as well."""
    machine = compose("H100 SXM 80GB", "AMD EPYC 7742", 64 * GIB, None)
    for model, batch in (("Llama-3.1-8B", 64), ("Qwen3-30B-A3B", 8)):
        question = {"model": model, "hardware": machine, "engine": "vllm", "format": "f16", "batch": batch}
        said = 0.6 * plan(question).plan.predicted.tokens_per_second.mid
        record = calibrate(question, decode=said).hardware
        (known,) = record.calibrations
        assert factors_in(known).factor("H100 SXM 80GB:share.16") > 1.2
        assert plan({**question, "hardware": record}).plan.predicted.tokens_per_second.mid == pytest.approx(
            said, rel=0.08
        )


def test_what_says_nothing_is_refused() -> None:
    with pytest.raises(BadInputError, match="nothing was measured"):
        calibrate(ASKED)
    with pytest.raises(UsageError, match="not a speed"):
        calibrate(ASKED, decode=0.0)
    with pytest.raises(UsageError, match="no constants to calibrate"):
        calibrate({"model": "Qwen3-0.6B", "hardware": MACHINE, "strategy": "layer-split"}, decode=10.0)
    (known,) = calibrate(ASKED, decode=100.0).hardware.calibrations
    other = MACHINE.model_copy(update={"calibrations": (known.model_copy(update={"constants": "0123"}),)})
    with pytest.raises(BadInputError, match="other constants"):
        made(other)


def test_cards_that_divide_every_layer_are_refused() -> None:
    pair = compose("2x L40S", "AMD EPYC 9354", 512 * GIB, None)
    with pytest.raises(UsageError, match="compose a machine with one card"):
        calibrate({"model": "Llama-3.1-8B", "hardware": pair, "engine": "vllm"}, decode=70)
