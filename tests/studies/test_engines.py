"""Engines as choices of studies and of fits: their own plans, at their own speeds."""

import pytest

import helmsman
from helmsman.hwdb.compose import GIB
from helmsman.schemas.errors import UsageError
from helmsman.studies.questions.points import grid_of
from helmsman.studies.questions.read_study import study_of
from helmsman.studies.report.text import text

SMALL = "Qwen3-0.6B"
MACHINE = "rtx4060-laptop"


def test_engines_of_a_study_have_their_own_plans() -> None:
    report = helmsman.study(
        {
            "models": SMALL, "machines": MACHINE, "formats": "q8_0", "strategies": "cpu-only", "sensitivity": 0,
            "engines": ["ours", "llama.cpp"], "options": {"llama-cpp": {"build_era": ["2024", "2025"]}},
        }
    )  # fmt: skip
    assert [(row.engine, row.strategy, row.options) for row in report.rows] == [
        ("ours", "cpu-only", None),
        ("llama.cpp", "llama-cpp", "build_era=2024"),
        ("llama.cpp", "llama-cpp", "build_era=2025"),
    ]
    asked = {"model": SMALL, "hardware": MACHINE, "format": "q8_0", "engine": "llama.cpp"}
    alone = helmsman.plan({**asked, "options": {"build_era": "2025"}})
    assert report.rows[2].request_s == alone.seconds
    assert "llama.cpp, build_era=2025" in text(report)


def test_the_engine_of_a_study_is_known() -> None:
    plain = {"models": [SMALL], "machines": [MACHINE]}
    with pytest.raises(UsageError, match="no engine whose speed is known"):
        grid_of(study_of({**plain, "engines": ["llama"]}))
    methods = grid_of(study_of({**plain, "engines": ["vllm"], "strategies": ["layer-split", "vllm"]})).methods
    assert [(method.engine, method.strategy) for method in methods] == [("vllm", "vllm")]


def test_a_machine_is_fitted_for_an_engine() -> None:
    report = helmsman.fit(MACHINE, [SMALL], formats=["q8_0"], engine="llama.cpp", options={"build_era": "2024"})
    newer = helmsman.fit(MACHINE, [SMALL], formats=["q8_0"], engine="llama.cpp", options={"build_era": "2025"})
    assert report.engine == "llama.cpp" and report.rows[0].strategy == "llama-cpp"
    assert "--fit" in str(report.rows[0].settings), "experts and layers are where the engine puts them"
    assert (report.rows[0].decode_rate or 0) < (newer.rows[0].decode_rate or 0)
    assert helmsman.fit(MACHINE, [SMALL], formats=["q8_0"], engine="vllm").rows[0].strategy == "vllm"


def test_memory_of_parts_decides_what_processors_read() -> None:
    parts = {"models": "Qwen3-8B", "formats": "q8_0", "engines": "llama.cpp", "sensitivity": 0}
    machine = {"cpu": "AMD Ryzen 7 5800X", "ram": 32 * GIB}
    stated = [{**machine, "memory": memory} for memory in ("2x DDR4-3200", "1x DDR4-3200")]
    both, one, unknown = helmsman.study({**parts, "machines": [*stated, machine]}).rows
    assert both.decode_rate and one.decode_rate and unknown.decode_rate and unknown.decode_rate_low
    assert 0.45 < one.decode_rate / both.decode_rate < 0.75
    assert unknown.decode_rate == pytest.approx(both.decode_rate)
    assert unknown.decode_rate_low < 0.9 * (both.decode_rate_low or 0.0)
