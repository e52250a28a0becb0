"""Workload variants as a user asks for them: recorded, simulated, refused by helm-run."""

import json

import pytest
from fewer_blocks import fewer_blocks

from helmsman.cli.plan import main as plan
from helmsman.cli.run import main as run
from helmsman.cli.sim import main as simulate

OPTIONS = ("--hw", "a4000-7950x", "--strategy", "op-split", "--batch", "8")
ASKED = ("--model", "opt-6.7b", *OPTIONS)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The question about six blocks, with as small a share of the accelerator's memory."""
    model = fewer_blocks(tmp_path_factory.mktemp("few"), "opt-6.7b", 6)
    return ("--model", model, *OPTIONS, "--vram-avail", "3GB")


@pytest.mark.parametrize(
    ("options", "recorded", "cache"),
    [
        (("--kv-keep", "0.25"), {"kv_keep": 0.25}, {"keep": 0.25, "select": 0.3, "holds": "kv"}),
        (
            ("--kv-keep", "0.25", "--kv-select", "0"),
            {"kv_keep": 0.25, "kv_select": 0.0},
            {"keep": 0.25, "select": 0.0, "holds": "kv"},
        ),
        (
            ("--activation-cache", "--chunks", "2"),
            {"activation_cache": True},
            {"keep": 1.0, "select": 0.0, "holds": "activations"},
        ),
    ],
)
def test_a_variant_is_recorded_simulated_and_not_executed(few, tmp_path, capsys, options, recorded, cache):
    file = tmp_path / "plan.json"
    assert plan([*few, *options, "-q", "--json", "-o", str(file)]) == 0
    made = json.loads(file.read_text())
    assert recorded.items() <= made["strategy"]["options"].items()
    assert made["schedule"]["cache"] == cache
    assert simulate([str(file), "-q"]) == 0
    capsys.readouterr()
    assert run([str(file), "--checkpoint", str(tmp_path), "--text", "x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "planned and simulated, not executed" in line


@pytest.mark.nightly
def test_a_written_table_of_a_variant_plans_the_same(few, tmp_path, capsys):
    table, options = tmp_path / "table.json", ("--kv-keep", "0.25", "--json")
    assert plan([*few, *options, "--write-table", str(table)]) == 0
    first = json.loads(capsys.readouterr().out)
    assert json.loads(table.read_text())["cache"]["keep"] == 0.25
    assert plan([*few, *options, "--table", str(table)]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["label"] == first["label"]
    seconds = [made["predicted"]["decode"]["seconds"]["mid"] for made in (first, second)]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-6)
    assert plan([*few, "--table", str(table)]) == 5
    assert "cache" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--kv-keep", "0"), "not a share of tokens"),
        (("--kv-keep", "1.5"), "not a share of tokens"),
        (("--kv-keep", "nan"), "not a share of tokens"),
        (("--kv-keep", "0.5", "--kv-select", "2"), "not a share of a head"),
        (("--kv-select", "0.5"), "add --kv-keep"),
        (("--activation-cache", "--chunks", "k=2"), "not a division"),
        (("--fused-attention", "--chunks", "scores=2"), "not a division"),
        (("--kv-format", "q8_0", "--chunks", "scores=2"), "not a division"),
        (("--activation-cache", "--model", "Llama-2-7b-hf"), "rotated"),
        (("--kv-keep", "0.5", "--strategy", "flexgen"), "does not go with"),
        (("--activation-cache", "--strategy", "layer-split"), "does not go with"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, options, says):
    assert plan([*ASKED, *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
