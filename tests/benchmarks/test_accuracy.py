"""Cells of the accuracy benchmark ask for their strategy and for a decode step; the bars on errors and intervals."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import accuracy
from benchmarks.accuracy import PLACEMENTS, Cell, Row, verdict
from shapes import small_model
from tiny_configs import TINY

from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.hwdb.load_model import load_model

ROW = Row("m", "bf16", "plan", 1.0, 1.0, 1.0, 0.0, 0.0, 0.01, 0.8, 1.3, 0.95, 1.05, 0.0, {})


def test_every_cell_asks_for_its_strategy_and_a_decode_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(accuracy, "_command", lambda *words: asked.append([str(word) for word in words]))
    monkeypatch.setattr("sys.argv", ["accuracy", "--work", str(tmp_path)])
    args = accuracy._arguments()
    for placement in PLACEMENTS:
        accuracy._plan(Cell(small_model("llama"), "bf16", placement, tmp_path), tmp_path / "hardware.json", args)
    strategies = [words[words.index("--strategy") + 1] for words in asked]
    assert strategies == [placement.strategy for placement in PLACEMENTS]
    assert len(set(strategies)) == 7
    assert {words[words.index("--objective") + 1] for words in asked} == {"latency"}


def test_a_file_is_planned_as_it_is_and_experts_are_divided_and_cached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config, file = tmp_path / "config.json", tmp_path / "experts.gguf"
    config.write_text(json.dumps({**TINY["qwen3_moe"], "vocab_size": 512}))
    write_gguf(load_model(str(config)), file, fmt="f16")
    monkeypatch.setattr("sys.argv", ["accuracy", "--work", str(tmp_path), "--models", str(file)])
    cells = list(accuracy._cells(accuracy._arguments()))
    assert {cell.format for cell in cells} == {"native"}
    assert len({cell.name for cell in cells}) == len(cells)
    assert [cell.placement.strategy for cell in cells if cell.placement.of != "any"] == ["ktransformers", "freetoken"]
    assert cells[0].sizes == (1, 2 * file.stat().st_size + accuracy.ROOM)


@pytest.mark.parametrize(("outside", "within"), [(0, False), (1, True), (3, True), (4, False)])
def test_intervals_must_cover_most_and_not_all(outside: int, within: bool) -> None:
    """Of 20 cells; one that covers all is wider than it needs to be."""
    missed = replace(ROW, scaled_error=0.08)
    assert verdict([missed] * outside + [ROW] * (20 - outside)) is within


def test_scaled_steps_are_judged_and_raw_ones_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A neighbour who slows every run is no error of the model; the plan's interval need not hold it."""
    slowed, missed = replace(ROW, error=0.5), replace(ROW, scaled_error=0.08)
    assert verdict([slowed] * 19 + [missed]) is True
    assert "intervals of plans: 5% cover, median width 50.0%" in capsys.readouterr().out
    assert verdict([replace(ROW, scaled_low=0.8, scaled_high=1.3)] * 19 + [replace(ROW, scaled_error=-0.3)]) is False


@pytest.mark.parametrize(("worst", "within"), [(0.09, True), (0.11, False)])
def test_the_worst_cell_may_be_a_tenth_off(worst: float, within: bool) -> None:
    assert verdict([ROW] * 9 + [replace(ROW, scaled_error=worst)]) is within
