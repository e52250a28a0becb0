"""Workload variants of studies: asked through the library, recorded, simulated, refused by helm-run."""

import json

import pytest
from daily import one_in
from fewer_blocks import fewer_blocks

import helmsman
from helmsman.cli.plan import main as plan
from helmsman.cli.run import main as run
from helmsman.cli.sim import main as simulate
from helmsman.planner.decision import Decision
from helmsman.planner.strategies.op_split.entry import tabulated
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.schemas.errors import BadInputError, HelmError

OPT = {"model": "opt-6.7b", "hardware": "a4000-7950x", "strategy": "op-split", "batch": 8}


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The question about six blocks, with as small a share of the accelerator's memory."""
    model = fewer_blocks(tmp_path_factory.mktemp("few"), "opt-6.7b", 6)
    return {**OPT, "model": model, "vram_available": 3 * 10**9}


FIELDS = ("model", "strategy", "prefix_tokens")


def decided(question, **options) -> Decision:
    return helmsman.plan({**question, "options": options})


@pytest.mark.parametrize(
    ("options", "cache"),
    one_in(
        3,
        [
            ({"kv_keep": 0.25}, {"keep": 0.25, "select": 0.3, "holds": "kv"}),
            ({"kv_keep": 0.25, "kv_select": 0.0}, {"keep": 0.25, "select": 0.0, "holds": "kv"}),
            ({"activation_cache": True, "chunks": "2"}, {"keep": 1.0, "select": 0.0, "holds": "activations"}),
        ],
    ),
)
def test_a_variant_is_recorded_simulated_and_not_executed(few, tmp_path, capsys, options, cache):
    file = tmp_path / "plan.json"
    file.write_text(decided(few, **options).plan.to_json())
    made = json.loads(file.read_text())
    assert options.items() <= made["strategy"]["options"].items()
    assert made["schedule"]["cache"] == cache
    assert simulate([str(file), "-q"]) == 0
    capsys.readouterr()
    assert run([str(file), "--checkpoint", str(tmp_path), "--text", "x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "planned and simulated, not executed" in line


@pytest.mark.nightly
def test_a_written_table_of_a_variant_plans_the_same(few, tmp_path):
    table = tmp_path / "table.json"
    first = decided(few, kv_keep=0.25)
    assert isinstance(first.searched, OpSplit)
    table.write_text(tabulated(first.searched).to_json())
    assert json.loads(table.read_text())["cache"]["keep"] == 0.25
    second = decided(few, kv_keep=0.25, table=str(table))
    assert second.plan.label == first.plan.label
    seconds = [made.plan.predicted.decode.seconds.mid for made in (first, second)]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-6)
    with pytest.raises(BadInputError, match="cache"):
        decided(few, table=str(table))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kv_keep": 0.0}, "not a share of tokens"),
        ({"kv_keep": 1.5}, "not a share of tokens"),
        ({"kv_keep": "nan"}, "not a share of tokens"),
        ({"kv_keep": 0.5, "kv_select": 2.0}, "not a share of a head"),
        ({"kv_select": 0.5}, "add `kv_keep`"),
        ({"activation_cache": True, "chunks": "k=2"}, "not a division"),
        ({"activation_cache": True, "model": "Llama-2-7b-hf"}, "rotated"),
        ({"activation_cache": True, "prefix_tokens": 9}, "activation_cache"),
        ({"kv_keep": 0.5, "strategy": "flexgen"}, "no such option"),
        ({"activation_cache": True, "strategy": "layer-split"}, "no such option"),
    ],
)
def test_what_makes_no_sense_is_refused(options, says):
    question = {**OPT, **{name: value for name, value in options.items() if name in FIELDS}}
    with pytest.raises(HelmError) as refusal:
        decided(question, **{name: value for name, value in options.items() if name not in FIELDS})
    assert says in f"{refusal.value} {refusal.value.field} {refusal.value.remedy}"


@pytest.mark.parametrize(
    "options", [("--fused-attention", "--chunks", "scores=2"), ("--kv-format", "q8_0", "--chunks", "scores=2")]
)
def test_what_is_one_operation_is_not_divided(capsys, options):
    assert plan(["--model", "opt-6.7b", "--hw", "a4000-7950x", "--strategy", "op-split", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "not a division" in line
