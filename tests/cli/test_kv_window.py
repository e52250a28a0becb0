"""--kv-window: a plan with a window of the accelerator's caches, and what is refused beside it."""

import json
from pathlib import Path

import pytest
from fewer_blocks import fewer_blocks

from helmsman.cli.plan import main
from helmsman.cli.sim import main as simulate

ASKED = ("--model", "Qwen3-0.6B", "--hw", "rtx4060-laptop", "--strategy", "layer-split")
LONG = ("--prompt-tokens", "3000", "--output-tokens", "100")


def test_a_window_is_planned_written_and_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan.json"
    model = fewer_blocks(tmp_path, "Qwen3-0.6B", 4)
    assert main([*ASKED, "--model", model, *LONG, "--kv-window", "2048", "-o", str(out)]) == 0
    told = capsys.readouterr().out
    assert "2048 of 3100 tokens of each sequence's KV; 3 pages of 512 at home by the last" in told
    plan = json.loads(out.read_text())
    (rule,) = [rule for rule in plan["kv"] if "cache" in rule]
    assert rule["memory"] == "dram" and rule["cache"]["window_tokens"] == 2048
    assert plan["strategy"]["options"]["kv_window"] == "2048"
    assert simulate([str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ttft_s"] == pytest.approx(plan["predicted"]["ttft"]["seconds"]["mid"], rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kv-window", "1000"), "multiple of 512"),
        (("--kv-window", "512"), "at least 1024"),
        (("--kv-window", "many"), "auto"),
        (("--kv-window", "auto", "--page-tokens", "100"), "multiple of 32"),
        (("--kv-window", "auto", "--watermark", "1"), "0.01 to 0.99"),
        (("--kv-window", "auto", "--kv-offload"), "--kv-offload"),
        (("--kv-window", "auto", "--batches", "2"), "--batches"),
        (("--page-tokens", "64"), "add --kv-window"),
        (("--watermark", "0.5"), "add --kv-window"),
        (("--kv-window", "auto", "--hw", "epyc9554-cpu"), "no accelerator"),
        (("--kv-window", "auto", "--strategy", "flexgen"), "does not go with"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, *arguments]) == 2
    assert words in capsys.readouterr().err
