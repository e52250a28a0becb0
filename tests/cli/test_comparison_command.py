"""`helm-plan --strategy all` and `--pareto`: one table, one document, options, and what does not fit."""

import json

import jsonschema
import pytest

from helmsman.cli import comparison
from helmsman.cli.plan import main
from helmsman.planner.registry import OWN
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.generate import json_schema
from helmsman.schemas.read import parse_document

ASKED = ("--model", "opt-125m", "--hw", "rtx4060-laptop", "--vram-avail", "250MB", "--output-tokens", "4")
"""One that does not fit the accelerator alone, and most strategies still plan."""
SMALL = ("--model", "opt-125m", "--output-tokens", "4")
NO_GPU = ("--model", "opt-125m", "--hw", "epyc9554-cpu")


FEW = ("layer-split", "flexgen", "weights-on-host", "cpu-only", "twinpilots", "accelerate", "vllm", "llama-cpp")
"""Strategies that plan in a moment."""


def only(monkeypatch, *names):
    """Let those be all strategies that are compared."""
    monkeypatch.setattr(comparison, "OWN", names)


def run(capfd, *argv):
    """Solvers print to the file descriptor, so that is what is read."""
    code = main([*map(str, argv)])
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    place = tmp_path_factory.mktemp("comparison") / "c.json"
    assert main([*ASKED, "--strategy", "all", "-q", "-o", str(place)]) == 0
    return place.read_text()


def test_every_strategy_has_a_row_and_the_best_is_first(document):
    found = parse_document(Comparison, document.encode(), "c.json")
    assert sorted(row.strategy for row in found.rows) == sorted(OWN)
    took = [row.planned.speed.request.mid for row in found.rows if row.planned]
    assert took == sorted(took) and len(took) >= 10
    assert [row.relative for row in found.rows if row.planned] == [each / took[0] for each in took]
    vllm = next(row for row in found.rows if row.strategy == "vllm")
    assert vllm.verdict == "does-not-fit" and vllm.lacks["vram"] > 0
    jsonschema.validate(json.loads(document), json_schema("comparison"), cls=jsonschema.Draft202012Validator)


def test_the_same_question_has_the_same_rows_in_the_same_text(capfd, document, monkeypatch, tmp_path):
    only(monkeypatch, *FEW)
    code, out, err = run(capfd, *ASKED, "--strategy", "all", "--json", "-o", tmp_path / "c.json")
    assert (code, out, err) == (0, (tmp_path / "c.json").read_text(), "")
    rows = [{**row, "relative": None} for row in json.loads(document)["rows"] if row["strategy"] in FEW]
    assert [{**row, "relative": None} for row in json.loads(out)["rows"]] == rows


def test_a_risk_is_not_of_all_strategies(capfd):
    code, _, err = run(capfd, *ASKED, "--strategy", "all", "--risk", "regret")
    assert code == 2 and "--risk: does not go with several plans" in err


@pytest.mark.parametrize("strategy", ["layer-split", "hetegen", "flexgen-lp"])
def test_rows_are_what_the_strategy_alone_plans(capfd, document, strategy):
    _, out, _ = run(capfd, *ASKED, "--strategy", strategy, "--json")
    plan = json.loads(out)
    row = next(row for row in json.loads(document)["rows"] if row["strategy"] == strategy)
    assert row["planned"]["label"] == plan["label"]
    assert row["planned"]["speed"]["step"] == plan["predicted"]["decode"]["seconds"]
    assert row["planned"]["memory"] == plan["predicted"]["memory"]


@pytest.mark.parametrize("strategy", ["accelerate", "llama-cpp"])
def test_engines_are_compared_by_their_placements(capfd, document, strategy):
    _, out, _ = run(capfd, *ASKED, "--strategy", strategy, "--same-software", "--json")
    row = next(row for row in json.loads(document)["rows"] if row["strategy"] == strategy)
    assert row["planned"]["speed"]["step"] == json.loads(out)["predicted"]["decode"]["seconds"]
    assert json.loads(document)["same_software"] is True


def test_a_machine_without_accelerator_has_few_strategies(capfd):
    code, out, err = run(capfd, *NO_GPU, "--strategy", "all")
    assert (code, err) == (0, "")
    assert "placements alone are compared" in out
    lines = {line.split()[0]: line for line in out.splitlines() if line and line.split()[0] in OWN}
    assert {name for name, line in lines.items() if line.endswith("1.00x")} == {
        "optimal",
        "layer-split",
        "cpu-only",
        "llama-cpp",
    }
    assert sum("does not apply" in line for line in lines.values()) == len(OWN) - 4


def test_options_go_to_those_that_have_them(capfd, monkeypatch):
    only(monkeypatch, "layer-split", "op-split", "flexgen", "weights-on-host", "layerwise-map")
    options = ("--home", "optane", "--compress", "weights", "--percent", "0,80,20")
    code, out, _ = run(capfd, *SMALL, "--hw", "a100-optane", "--strategy", "all", *options, "--json")
    rows = {row["strategy"]: row for row in json.loads(out)["rows"]}
    assert code == 0 and json.loads(out)["options"]["home"] == "optane"
    assert rows["flexgen"]["planned"]["label"].startswith("flexgen (0, 80, 20) -> ")
    assert "optane q4" in rows["weights-on-host"]["planned"]["label"]
    assert sorted(rows["layer-split"]["ignored"]) == ["compress", "home", "percent"]
    assert rows["layerwise-map"]["ignored"] == [] and rows["op-split"]["ignored"] == ["home", "percent"]


def test_nothing_fits(capfd):
    asked = ("--model", "opt-175b", "--hw", "m1-16gb", "--strategy", "all")
    code, out, err = run(capfd, *asked)
    assert code == 3 and "layer-split" in out and "lacks" in out
    assert "no strategy fits opt-175b on m1-16gb; " in err and err.count("\n") == 1
    code, out, _ = run(capfd, *asked, "--json")
    assert code == 3 and json.loads(out)["error"]["code"] == "infeasible" and json.loads(out)["error"]["remedy"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--chunks", "4"), "--chunks"),
        (("--kv-offload",), "--kv-offload"),
        (("--ngl", "4"), "--ngl"),
        (("--max-context",), "--max-context"),
        (("--table", "t.json"), "--table"),
        (("--pareto", "0"), "--pareto"),
        (("--pareto", "100000"), "--pareto"),
        (("--batch", "8", "--pareto", "4"), "--pareto"),
    ],
)
def test_options_of_single_strategies_are_refused(capfd, options, field):
    code, out, _ = run(capfd, *NO_GPU, "--strategy", "all", *options, "--json")
    assert code == 2 and json.loads(out)["error"]["field"] == field and json.loads(out)["error"]["remedy"]


def test_a_mistake_in_an_option_is_none_of_the_strategies(capfd, monkeypatch):
    only(monkeypatch, *FEW)
    code, out, err = run(capfd, *SMALL, "--hw", "rtx4060-laptop", "--strategy", "all", "--home", "nowhere")
    assert (code, out) == (2, "") and "no such memory" in err


def test_all_strategies_are_asked_by_the_objective(capfd, monkeypatch):
    only(monkeypatch, *FEW, "optimal")
    code, out, _ = run(capfd, *SMALL, "--hw", "a10g-g5.4xlarge", "--strategy", "all", "--objective", "ttft", "--json")
    rows = [row for row in json.loads(out)["rows"] if "planned" in row]
    firsts = [row["planned"]["speed"]["ttft"]["mid"] for row in rows]
    assert code == 0 and len(rows) == 9 and firsts == sorted(firsts)


def test_larger_batches_of_one_strategy(capfd):
    asked = (*ASKED, "--strategy", "layer-split", "--batch", "2", "--pareto", "8")
    code, out, _ = run(capfd, *asked, "--json")
    found = json.loads(out)
    assert code == 0 and [point["batch"] for point in found["points"]] == [2, 4, 8]
    assert found["rows"][0]["planned"] == found["points"][0]["planned"] and found["same_software"] is False
    code, out, _ = run(capfd, *asked)
    best = [point for point in found["points"] if point["front"]]
    assert "no other of 3 plans" in out and out.count("layer-split") == 1 + len(best)


@pytest.mark.nightly
def test_points_are_planned_for_what_is_drawn(capfd):
    """Requests and tokens/s, not the decode step by which the table is sorted: the front is as low as can be."""
    question = ("--model", "Qwen3-0.6B", "--hw", "rtx4060-laptop", "--vram-avail", "700MB", "--batch", "16")
    asked = (*question, "--strategy", "optimal", "--json")
    points = json.loads(run(capfd, *asked, "--objective", "latency", "--pareto", "16")[1])["points"]
    plan = json.loads(run(capfd, *asked, "--objective", "request")[1])
    assert [point["planned"]["label"] for point in points] == [plan["label"]]
    assert points[0]["planned"]["label"] != json.loads(run(capfd, *asked, "--objective", "latency")[1])["label"]


@pytest.mark.parametrize(
    ("options", "code", "field"),
    [
        (("vllm", "--pareto", "2"), 3, None),
        (("layer-split", "--pareto", "2", "--chunks", "4"), 2, "--chunks"),
        (("op-split", "--pareto", "2", "--write-table", "t.json"), 2, "--write-table"),
        (("layer-split", "--pareto", "2", "--max-context"), 2, "--pareto"),
    ],
)
def test_a_single_strategy_says_why_itself(capfd, options, code, field):
    found, out, _ = run(capfd, *ASKED, "--strategy", *options, "--json")
    assert found == code and json.loads(out)["error"]["field"] == field


def test_seconds_of_strategies_are_for_those_who_ask(capfd, document):
    _, out, _ = run(capfd, *NO_GPU, "--strategy", "all", "-v")
    assert out.splitlines()[-1].startswith("seconds      optimal 0.") and "seconds " not in document


@pytest.mark.parametrize(
    ("limited", "what"), [("tpot", "step"), pytest.param("ttft", "ttft", marks=pytest.mark.nightly)]
)
def test_limits_are_compared_with_every_plan(capfd, document, monkeypatch, limited, what):
    """Plans that miss one come last, and are not on the front."""
    only(monkeypatch, *FEW, "optimal")
    rows = [row["planned"]["speed"][what]["mid"] for row in json.loads(document)["rows"] if "planned" in row]
    limit = 1.001 * sorted(rows)[len(rows) // 2]
    code, out, _ = run(
        capfd, *ASKED, "--strategy", "all", "--pareto", "1", "--slo", f"{limited}={limit:.9f}s", "--json"
    )
    found, points = [row for row in json.loads(out)["rows"] if "planned" in row], json.loads(out)["points"]
    late = [row["planned"]["speed"][what]["mid"] > limit for row in found]
    assert code == 0 and late == sorted(late) and True in late and not late[0]
    assert [row.get("misses", []) == [limited] for row in found] == late
    assert all("slo" not in row.get("ignored", []) for row in found)
    late = [point["planned"]["speed"][what]["mid"] > limit for point in points]
    assert any(late) and not all(late), "the limit tells points apart"
    assert [point.get("misses", []) == [limited] for point in points] == late
    assert any(point["front"] for point in points)
    assert not any(point["front"] and point.get("misses") for point in points)


def test_limits_that_no_plan_keeps_are_refused_after_the_table(capfd, monkeypatch):
    only(monkeypatch, "optimal", "cpu-only")
    code, out, err = run(capfd, *ASKED, "--strategy", "all", "--slo", "ttft=1ms")
    assert code == 3 and "misses" in out and "the smallest change: ttft=" in err
