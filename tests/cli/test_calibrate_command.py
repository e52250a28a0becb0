"""helm-calibrate: a record from results or from a speed by hand, and what it says of refused rows."""

import json
from pathlib import Path

import pytest

from helmsman.cli.calibrate import main
from helmsman.schemas.hardware import Hardware

MACHINE = ["--hw", "rtx3090-5950x"]


def test_a_speed_by_hand_makes_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.json"
    by_hand = ["--model", "Qwen3-8B", "--format", "q4_k_m", "--decode", "100", "-o", str(out)]
    assert main([*MACHINE, *by_hand]) == 0
    printed = capsys.readouterr().out
    assert "1 run" in printed and "before" in printed and f"--hw {out}" in printed
    record = Hardware.model_validate_json(out.read_bytes())
    assert record.calibrations[0].runs[0].value == 100.0


def test_rows_of_other_machines_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"backends": "CUDA", "n_gpu_layers": 99, "model_filename": "Qwen3-8B-Q4_K_M.gguf", "n_prompt": 0, "n_gen": 64,
           "model_type": "qwen3 8B Q4_K - Medium", "avg_ts": 100.0}  # fmt: skip
    rows = [{**row, "gpu_info": "NVIDIA GeForce RTX 3090"}, {**row, "gpu_info": "NVIDIA GeForce RTX 4090"}]
    result = tmp_path / "bench.json"
    result.write_text(json.dumps(rows))
    assert main([str(result), *MACHINE, "--json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["runs"]) == 1
    assert "row 2: ran on NVIDIA GeForce RTX 4090" in captured.err
    result.write_text(json.dumps(rows[1:]))
    assert main([str(result), *MACHINE]) == 5
    assert "RTX 4090" in capsys.readouterr().err
