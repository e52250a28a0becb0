"""`helm-plan --strategy op-split` as a user meets it: divisions, storage, what is recorded and refused."""

import json

import pytest
from daily import one_in
from fewer_blocks import fewer_blocks
from plan_command import planned, run

import helmsman
from helmsman.cli.plan import main
from helmsman.cli.sim import main as simulate
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.checks.accept import accept
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document

SPLIT = ("--model", "opt-6.7b", "--hw", "a4000-7950x", "--strategy", "op-split", "--batch", 4)


def test_verbose_names_the_parts_of_a_search(capsys, tmp_path):
    """PARK-50: balancing only where weights may come from storage; the parts are all there is."""
    model = fewer_blocks(tmp_path, "opt-30b", 5)
    model_and_machine = ("--model", model, "--hw", "a4000-7950x", "--vram-avail", "3GB", "--output-tokens", "2")
    question = (*model_and_machine, "--strategy", "op-split", "-v")
    for options, first in (((), "prices"), (("--nvme", "direct"), "balancing")):
        code, out, _ = run(capsys, *question, *options)
        (line,) = (line for line in out.splitlines() if line.startswith("search "))
        total, parts = line.split(", ", 1)[1].split(" s in all: ")
        seconds = {name: float(value) for name, value, _ in (part.split() for part in parts.split(", "))}
        assert (
            code == 0 and next(iter(seconds)) == first and [*seconds][-4:] == ["prices", "search", "finalists", "plan"]
        )
        assert sum(seconds.values()) == pytest.approx(float(total), abs=0.02)


def test_an_operation_is_divided_once(capsys):
    code, out, err = run(capsys, *SPLIT, "--chunks", "scores=8,wv=2,scores=4")
    assert (code, out) == (2, "")
    assert "--chunks: divides scores twice" in err


@pytest.mark.parametrize("text", ["scores=8,wv", "scores=8,", "=3", "scores", "0x4", "1e9"])
def test_divisions_that_are_none_are_refused(capsys, text):
    code, out, err = run(capsys, *SPLIT, "--chunks", text)
    assert (code, out) == (2, "")
    assert "--chunks" in err and "not a division of operations" in err


def test_everything_is_divided_as_far_as_it_can_be(capsys, tmp_path):
    """K and V of this model have two KV heads, of four panels of rows each; the FFN has 16 parts."""
    small = reshaped(load_model("Qwen2.5-0.5B"), layers=1, hidden=128, heads=4, head_dim=64, ffn=256)
    (tmp_path / "model.json").write_text(small.to_json())
    machine = ("--hw", "rtx4060-laptop", "--model", tmp_path / "model.json")
    plan = planned(capsys, *machine, "--strategy", "op-split", "--chunks", "16")
    assert plan["strategy"]["options"]["chunks"] == "16"


@pytest.mark.parametrize(
    ("strategy", "options", "batch", "field"),
    [
        ("op-split", {"no_overlap": True}, 4, "paper"),
        ("op-split", {"pinning": "pin-on-transfer"}, 4, "paper"),
        ("layer-split", {}, 2, "batch"),
    ],
)
def test_the_printed_equations_know_neither_waiting_nor_batches(strategy, options, batch, field):
    question = {"model": "opt-6.7b", "hardware": "a4000-7950x", "strategy": strategy, "batch": batch}
    with pytest.raises(UsageError) as refusal:
        helmsman.plan({**question, "options": {**options, "paper": True}})
    assert refusal.value.field == field


@pytest.mark.parametrize("flag", ["--paper", "--no-corrections", "--l3-blend", "--kv-keep=0.5", "--reshape"])
def test_what_figures_of_papers_need_has_no_flag(capsys, flag):
    code, _, err = run(capsys, *SPLIT, flag)
    assert code == 2 and flag.partition("=")[0] in err


def test_one_file_is_written_once(capsys, tmp_path):
    place = tmp_path / "x.png"
    code, _, err = run(capsys, *SPLIT, "-o", place, "--plot", place)
    assert code == 2 and "--plot: is written by -o too" in err
    assert not place.exists()


def test_direct_storage_needs_a_link(capsys, tmp_path):
    record = load_hardware("a4000-7950x", None)
    links = tuple(
        link for link in record.links if not (link.source_memory.startswith("nvme") and link.target_memory == "vram")
    )
    path = tmp_path / "hw.json"
    path.write_text(record.model_copy(update={"links": links}).to_json())
    argv = ("--model", "opt-6.7b", "--hw", path, "--strategy", "op-split", "--batch", 4, "--nvme")
    code, _, err = run(capsys, *argv, "direct")
    assert code == 2 and "no link from nvme0 to vram" in err and "--nvme bounce" in err


@pytest.mark.parametrize("flag", ["-o", "--plot", "--write-table"])
def test_places_are_checked_before_anything_is_written(capsys, tmp_path, flag):
    places = {"-o": tmp_path / "p.json", "--plot": tmp_path / "p.png", "--write-table": tmp_path / "t.json"}
    places[flag] = tmp_path / "nowhere" / places[flag].name
    code, out, err = run(capsys, *SPLIT, *(word for pair in places.items() for word in pair))
    assert (code, out) == (2, "")
    assert f"{places[flag]}: cannot be written" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", one_in(2, ["opt-6.7b", "Qwen3-8B"]))
@pytest.mark.parametrize(
    "options",
    [
        ("--strategy", "layer-split"),
        ("--strategy", "layer-split", "--kv-offload"),
        ("--strategy", "op-split", "--compress", "all"),
        ("--strategy", "op-split", "--no-overlap", "--pinning", "pin-on-transfer"),
        ("--strategy", "op-split", "--fused-attention", "--no-cpu-offload"),
        ("--strategy", "flexgen", "--compress", "all"),
        ("--strategy", "flexgen", "--cpu-compute", "--batches", 2),
    ],
)
def test_plans_of_every_strategy_can_be_given_back(capsys, tmp_path, model, options):
    path, vram = fewer_blocks(tmp_path, model, 3), ("--vram-avail", "2GB")
    plan = planned(capsys, "--model", path, "--hw", "a4000-7950x", *vram, *options)
    accept(parse_document(Plan, json.dumps(plan).encode(), "plan.json"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A question about four blocks."""
    model = fewer_blocks(tmp_path_factory.mktemp("small"), "opt-125m", 4)
    return ("--model", model, "--hw", "a4000-7950x", "--strategy", "op-split", "--output-tokens", 4)


@pytest.fixture(scope="module")
def small_plan(small, tmp_path_factory):
    """Its answer, as it is written."""
    place = tmp_path_factory.mktemp("small") / "plan.json"
    assert main([*map(str, small), "-q", "-o", str(place)]) == 0
    return place.read_text()


@pytest.mark.parametrize(
    ("option", "value"),
    one_in(
        2,
        [
            ("nvme", "direct"),
            ("nvme", "bounce"),
            ("pinning", "pageable"),
            ("pinning", "pin-on-transfer"),
            ("chunks", "2"),
            ("chunks", "scores=3,wv=2"),
        ],
    ),
)
def test_ablations_are_recorded_and_their_plans_replayed(small, capsys, tmp_path, option, value):
    code, out, err = run(capsys, *small, f"--{option}", value, "--json", "-o", tmp_path / "plan.json")
    assert (code, err) == (0, "")
    assert json.loads(out)["strategy"]["options"][option] == value
    assert simulate([str(tmp_path / "plan.json"), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out)["tpot_s"] > 0


def test_plans_whose_caches_are_turned_are_replayed(capsys, tmp_path):
    """Commands have no flag for it."""
    model = fewer_blocks(tmp_path, "opt-125m", 4)
    question = {"model": model, "hardware": "a4000-7950x", "strategy": "op-split", "output_tokens": 4}
    plan = helmsman.plan({**question, "options": {"reshape": True}}).plan
    assert plan.strategy.options["reshape"] is True and plan.schedule.reshape
    (tmp_path / "plan.json").write_text(plan.to_json())
    assert simulate([str(tmp_path / "plan.json"), "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["tpot_s"] == pytest.approx(plan.predicted.decode.seconds.mid, rel=1e-9)


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ("scores=13", "scores has 12 KV heads"),
        ("q=49", "768 rows, divided by 16"),
        ("q=0", "use 1 to 48"),
    ],
)
def test_operations_are_divided_into_no_more_than_they_have(small, capsys, chunks, words):
    code, out, err = run(capsys, *small, "--chunks", chunks)
    assert (code, out) == (2, "")
    assert "--chunks: " in err and words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("rules", "op", "axis", "stop", "words"),
    [
        ("compute", "scores", "heads", 13, "select.part.stop: scores has 12 heads (got 13)"),
        ("compute", "up", "rows", 3073, "select.part.stop: up has 3072 rows (got 3073)"),
        ("compute", "up", "heads", 4, "select.part.axis: up is divided by rows (got 'heads')"),
        ("residence", "q.weight", "rows", 769, "select.part.stop: q.weight has 768 rows (got 769)"),
        ("kv", "keys", "heads", 13, "select.part.stop: keys has 12 heads (got 13)"),
    ],
)
def test_parts_beyond_what_there_is_name_their_rule(small_plan, capsys, tmp_path, rules, op, axis, stop, words):
    """The rule is put before those of a plan as it was written: third, so that its number tells."""
    content = json.loads(small_plan)
    wrong = {**content[rules][-1], "select": {"names": op, "part": {"axis": axis, "start": 0, "stop": stop}}}
    others = [{**wrong, "select": {"names": op, "layers": {"start": k, "stop": k + 1}}} for k in (2, 3)]
    (tmp_path / "plan.json").write_text(json.dumps({**content, rules: [*others, wrong, *content[rules]]}))
    assert simulate([str(tmp_path / "plan.json")]) == 5
    captured = capsys.readouterr()
    assert f"plan.json: {rules}.2.{words}" in captured.err
    assert captured.out == "" and captured.err.count("\n") == 1


def test_the_title_names_batches_and_every_format(small, capsys, tmp_path):
    streamed = (*small, "--no-cpu-offload", "--batches", 2, "--batch", 25)
    code, _, _ = run(capsys, *streamed, "--compress", "all", "--json", "-o", tmp_path / "plan.json")
    assert code == 0
    assert simulate([str(tmp_path / "plan.json")]) == 0
    assert "batch 2 x 25" in capsys.readouterr().out
    title = run(capsys, *streamed, "--compress", "all")[1].splitlines()[0]
    assert "batch 2 x 25, context 132, " in title
    assert "f16 and q4 weights" in title or "q4 and f16 weights" in title
    assert title.endswith(", q4 KV")
    assert run(capsys, *streamed)[1].splitlines()[0].endswith(", f16 weights, f16 KV")
