"""`--format` and `--kv-format` as a user meets them."""

import json

import pytest
from fewer_blocks import fewer_blocks

from helmsman.cli.plan import main
from helmsman.cli.sim import main as simulate

MACHINE = ("--hw", "rtx4060-laptop", "--strategy", "layer-split")


def test_the_title_names_the_formats_and_the_plan_simulates(capsys, tmp_path):
    plan = tmp_path / "plan.json"
    arguments = ["--model", "Qwen3-8B", *MACHINE, "--format", "q4_k", "--kv-format", "q8_0", "-o", str(plan)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("q4_k weights, q8_0 KV")
    assert simulate([str(plan), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["--model", "Qwen2.5-0.5B", "--format", "q4_k"],
            "--format: embedding.weight has 896 columns, and blocks of q4_k are of 256 (got 'q4_k'); use --format q4_0",
        ),
        (
            ["--model", "Qwen3-0.6B", "--format", "q8_0", "--strategy", "op-split", "--compress", "all"],
            "--compress: 4-bit groups are expanded to f32, f16 or bf16, and --format is q8_0 (got 'all'); leave "
            "--compress out: q8_0 is quantised already; or use --format f16",
        ),
        (
            ["--model", "Qwen3-0.6B", "--kv-format", "q8_0", "--strategy", "op-split", "--compress", "kv"],
            "--compress: 4-bit groups are expanded to f32, f16 or bf16, and --kv-format is q8_0 (got 'kv'); leave "
            "--compress out: q8_0 is quantised already; or use --kv-format f16",
        ),
        (["--model", "Qwen3-0.6B", "--kv-format", "q4_0"], "--kv-format: no such choice (got 'q4_0')"),
    ],
)
def test_what_cannot_be_is_refused(capsys, argv, said):
    assert main([*MACHINE, *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err


@pytest.mark.parametrize("strategy", ["op-split", "all-cpu", "optimal"])
def test_every_way_to_stream_takes_them(capsys, tmp_path, strategy):
    model = fewer_blocks(tmp_path, "Qwen3-8B", 6)
    arguments = ["--model", model, "--hw", "rtx4060-laptop", "--vram-avail", "1GB", "--strategy", strategy]
    assert main([*arguments, "--format", "q4_0", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {rule["format"] for rule in plan["residence"]} == {"q4_0"}
    assert plan["predicted"]["tokens_per_second"]["mid"] > 3
