"""Threads and memory of processors, as an engine's predictions know them."""

from typing import Any

import pytest

from helmsman.hwdb.compose import GIB, MEMORY_SPEED, compose
from helmsman.library import emit, plan, read_settings
from helmsman.schemas.errors import UsageError

CPU = {"cpu": "AMD Ryzen 9 5950X", "ram": 64 * GIB, "memory": "2x DDR4-3200"}


def asked(threads: int | None = None, **more: Any) -> dict[str, Any]:
    options = {} if threads is None else {"threads": threads}
    question = {"model": "Qwen3-8B", "hardware": CPU, "format": "q8_0", "engine": "llama.cpp", "prompt_tokens": 512}
    return {**question, "options": options, **more}


def test_fewer_threads_compute_less_and_read_more_slowly_once_too_few() -> None:
    speeds = {threads: plan(asked(threads)).plan.predicted for threads in (1, 8, 16)}
    everything = plan(asked()).plan.predicted
    assert speeds[16].decode.seconds == everything.decode.seconds
    assert speeds[8].prefill.seconds.mid > 1.7 * everything.prefill.seconds.mid
    assert speeds[8].decode.seconds.mid == pytest.approx(everything.decode.seconds.mid, rel=0.05)
    assert speeds[1].decode.seconds.mid > 1.2 * everything.decode.seconds.mid
    width = {key: of.decode.seconds.high / of.decode.seconds.low for key, of in speeds.items()}
    assert width[1] > 1.3 * width[16], "nobody measured what one core reads"


def test_threads_are_in_settings_and_read_from_them() -> None:
    settings = emit(asked(8), "llama.cpp")
    assert " -t 8 -tb 8 " in settings.text
    reading = read_settings(settings.text, asked())
    assert reading.yours.speed == settings.plan.speed and not reading.unpriced
    assert "-t 8" in reading.placed
    apart = read_settings("llama-server -t 8 -tb 16", asked())
    assert apart.unpriced == ("-tb 16",)
    with pytest.raises(UsageError, match="not a number of threads"):
        plan(asked(0))


def test_settings_of_another_engine_are_priced_on_the_machine_that_was_asked_about() -> None:
    machine = "rtx4060-laptop"
    planned = plan(asked(hardware=machine, model="Qwen3-8B", format="q4_k", options={"build_era": "2024"})).plan
    assert planned.machine is not None and planned.machine.name == machine
    other = plan({"model": "Qwen3-8B", "hardware": machine, "format": "q4_k", "prompt_tokens": 512, "strategy": "vllm",
                  "options": {"cpu_offload_gb": 0.0}})  # fmt: skip
    written = emit(planned, "vllm")
    assert written.nearest is not None
    assert written.nearest.speed.decode_rate.mid == pytest.approx(1 / other.plan.predicted.decode.seconds.mid, rel=0.02)


def test_memory_that_nobody_stated_is_doubted() -> None:
    unknown = compose(None, CPU["cpu"], CPU["ram"], None).devices[0].read
    known = compose(None, CPU["cpu"], CPU["ram"], None, memory="DDR4-3200").devices[0].read
    assert unknown.source == MEMORY_SPEED and unknown.value == known.value
    assert unknown.p10 < 0.8 * known.p10
    for memory in ("DDR9", "0x DDR4-3200", "3x DDR4-3200"):
        with pytest.raises(UsageError) as error:
            compose(None, CPU["cpu"], CPU["ram"], None, memory=memory)
        assert error.value.field == "memory" and error.value.remedy
