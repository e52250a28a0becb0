"""The page of the papers' numbers: verdicts, bounds, lists, what is left out, what falls out of its tolerance."""

import json

import pytest
from benchmarks.papers.facts import __main__ as facts
from benchmarks.papers.facts.answer import Answer, of_figure
from benchmarks.papers.facts.left_out import GROUPS
from benchmarks.papers.facts.page import page, unexplained
from benchmarks.papers.figure import Found
from together import together

GIVEN = [
    {"id": "HELM-F001", "value": 4096, "unit": "", "quantity": "hidden"},
    {"id": "HELM-F304", "value": 50.0, "unit": "ms", "quantity": "latency", "conditions": {"gpu": "RTX 3090"}},
    {"id": "HELM-F099", "value": "x", "unit": "tok/s", "quantity": "speed"},
    {"id": "HELM-F132", "value": "NR", "unit": "ms", "quantity": "TTFT"},
    {"id": "PARK-F126", "value": "4x60", "unit": "", "quantity": "batches"},
    {"id": "GUPTA-F042", "value": [33.0, 34.0], "unit": "%", "quantity": "improvement"},
    {"id": "GUPTA-F052", "value": {"OPT-30B": 32}, "unit": "", "quantity": "max batch"},
    {"id": "NEO-F999", "value": 1, "unit": "", "quantity": "unheard of"},
]
ANSWERS = {
    "HELM-F001": Answer(4096.0, 0.0, "given"),
    "HELM-F304": Answer(61.0),
    "HELM-F099": Answer("x"),
    "HELM-F132": Answer(30.0),
    "PARK-F126": Answer(61.0),
    "GUPTA-F042.0": Answer(40.0, 10.0, points=True),
    "GUPTA-F042.1": Answer(45.0, 10.0, points=True),
    "GUPTA-F052.OPT-30B": Answer(None),
}


@pytest.fixture
def given(tmp_path):
    path = tmp_path / "facts.json"
    about = {"where": "Table 1", "role": "target", "conditions": {}}
    path.write_text(json.dumps([{**about, "doc": each["id"].partition("-")[0], **each} for each in GIVEN]))
    return path


@together(
    ("answer", "published", "holds"),
    [
        (Answer(1.19), 1.0, True),
        (Answer(1.21), 1.0, False),
        (Answer(0.79), 1.0, False),
        (Answer(55.0, 5.0, points=True), 50.0, True),
        (Answer(4.0, 0.0, "at least"), 3.0, True),
        (Answer(2.0, 0.0, "at least"), 3.0, False),
        (Answer(2.0, 0.0, "at most"), 3.0, True),
        (Answer(4.0, 0.0, "at most"), 3.0, False),
        (Answer("x"), "x", True),
        (Answer("x"), "OOM", True),
        (Answer("x"), 3.0, False),
        (Answer(3.0), "OOM", False),
        (Answer(None), 3.0, False),
        (Answer(0.0, 0.02), 0.0, True),
    ],
)
def test_verdicts(answer, published, holds):
    assert answer.holds(published) == holds


def test_percentages_are_compared_in_points():
    found = of_figure([Found("A", 12.0), Found("B", 12.0)], points=["B"])
    assert found["A"].error(10.0) == pytest.approx(0.2) and found["B"].error(10.0) == 2.0


def test_the_page_lists_everything(given):
    read = facts.read_facts(given)
    text = page(read, ANSWERS)
    assert "| HELM-F304 | Table 1 | latency (gpu RTX 3090) | 50 ms | 61 | +22.0 % | 20 % | **outside** |" in text
    assert "| HELM | 3 | 2 | 1 |" in text
    assert "| PARK-F126 | Table 1 | batches | 60 | 61 | +1.7 %" in text
    assert "| GUPTA-F042.1 | Table 1 | improvement | 34 % | 45 | +11.0 pp | 10 pp | **outside** |" in text
    assert "does not fit" in text
    assert "Not reported there (NR). HELM-F132." in text and "| HELM-F132 |" not in text
    assert unexplained(read, ANSWERS) == ["NEO-F999"]


def test_a_fact_has_one_reason():
    names = [name for group in GROUPS for name in group.facts]
    assert len(names) == len(set(names))


def test_what_falls_out_of_its_tolerance_is_an_error(given, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(facts, "_ANSWERS", {name: lambda: ANSWERS for name in ("HELM", "PARK", "GUPTA", "APEX")})
    before, out = tmp_path / "before.json", tmp_path / "facts.md"
    asked = ["--facts", str(given), "-o", str(out), "--json"]
    assert facts.main([*asked, str(before)]) == 0
    known = json.loads(before.read_text())
    assert known["HELM-F001"]["within"] and not known["HELM-F304"]["within"]
    now = tmp_path / "now.json"
    assert facts.main([*asked, str(now), "--against", str(before)]) == 0
    monkeypatch.setitem(ANSWERS, "HELM-F001", Answer(4095.0, 0.0, "given"))
    assert facts.main([*asked, str(now), "--against", str(before)]) == 4
    assert "no longer within: HELM-F001" in capsys.readouterr().out


def test_a_bad_file_is_refused(tmp_path, capsys):
    path = tmp_path / "facts.json"
    path.write_text('[{"id": 3}]')
    assert facts.main(["--facts", str(path)]) == 5
    assert "not a file of facts" in capsys.readouterr().err
