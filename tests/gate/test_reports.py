"""A report in forms that other programs read: JUnit XML, Markdown, annotations."""

from xml.etree import ElementTree

import pytest

from helmsman.gate.annotations import annotations
from helmsman.gate.junit import junit_xml
from helmsman.gate.markdown import markdown
from helmsman.gate.outcome import suite_error, suite_report
from helmsman.gate.report_text import report_text
from helmsman.schemas.gate_report import CaseFailure, CaseResult, FigureResult, FigureTimes, GateReport, GateVerdict

STRANGE = 'a<b>&"c" | d\x01: 5 %, *e*\nf'


def case(name: str, verdict: GateVerdict, *, was: GateVerdict | None = "ok", reason: str = "because") -> CaseResult:
    times = FigureTimes(predicted_s=0.01, samples_s=(0.01, 0.011, 0.012))
    figure = FigureResult(
        figure="step", now=times, baseline=times, change=None, error=0.1, error_before=0.1, predicted_change=0.0,
        verdict=verdict, reason=reason, remedy=None,
    )  # fmt: skip
    failed = verdict == "failed"
    return CaseResult(
        case=name, plan="cpu(1)", plan_sha256="0" * 64, hardware="this", hardware_sha256="0" * 64, machine="one",
        measured_by="run", baseline=None, figures=() if failed else (figure,), changes=(), verdict=verdict, was=was,
        blocks=was == "ok" and verdict in ("slower", "drift", "failed"), reason=reason, remedy="do something",
        failure=CaseFailure(
            code="bad-input", exit_code=5, message=reason, file="case.json", field=None, value=None, remedy=None
        ) if failed else None,
    )  # fmt: skip


def report(*cases: CaseResult) -> GateReport:
    return suite_report("gate", "2026-01-01T00:00:00Z", cases, ["a note"])


ALL = report(
    case("fine", "ok"),
    case("quick", "faster"),
    case("slow", "slower"),
    case("wrong", "drift"),
    case("noisy", "undecided"),
    case("broken", "failed"),
    case("known", "slower", was=None),
)


def test_junit_tells_failures_errors_and_what_is_skipped() -> None:
    suite = ElementTree.fromstring(junit_xml(ALL))[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "7", "failures": "2", "errors": "1", "skipped": "2",
    }  # fmt: skip
    tags = {element.get("name"): [child.tag for child in element] for element in suite.iter("testcase")}
    assert tags == {
        "fine": [], "quick": [], "slow": ["failure"], "wrong": ["failure"], "noisy": ["skipped"],
        "broken": ["error"], "known": ["skipped"],
    }  # fmt: skip


def test_strange_texts_stay_readable() -> None:
    strange = report(case("odd", "slower", reason=STRANGE))
    failure = ElementTree.fromstring(junit_xml(strange)).find(".//failure")
    assert failure is not None and failure.get("type") == "slower"
    assert 'a<b>&"c" | d?: 5 %, *e*' in str(failure.get("message"))
    line = annotations(strange)
    assert line.count("\n") == 0 and line.endswith("d\x01: 5 %25, *e*%0Af")
    table = [row for row in markdown(report(case("a|b", "slower"))).splitlines() if row.startswith("|")]
    assert len({row.count("|") for row in table}) == 1, "a name adds no column"


def test_annotations_are_as_serious_as_verdicts() -> None:
    levels = [line.split(" ")[0] for line in annotations(ALL).splitlines()]
    assert levels == ["::notice", "::error", "::error", "::warning", "::error", "::warning"]
    assert "file=gate/slow/case.json,title=helm-check slow%3A slower::" in annotations(ALL)
    assert annotations(report(case("fine", "ok"))) == ""


def test_the_text_names_every_case_and_note() -> None:
    text = report_text(ALL, verbose=True)
    assert all(result.case in text for result in ALL.cases) and "note         a note" in text
    assert text.endswith(
        "2 of 7 cases ok; slow slower, wrong drift, noisy undecided, broken failed, known slower; 3 blocked"
    )
    assert all(name in markdown(ALL) for name in ("slow", "drift", "undecided", "a note"))


@pytest.mark.parametrize(
    ("cases", "verdict", "code"),
    [
        ([case("a", "ok"), case("b", "faster")], "ok", 0),
        ([case("a", "undecided")], "undecided", 6),
        ([case("a", "undecided"), case("b", "drift")], "blocked", 4),
        ([case("a", "failed", was=None)], "failed", 5),
        ([case("a", "failed"), case("b", "slower")], "blocked", 4),
        ([case("a", "failed")], "blocked", 5),
        ([case("a", "slower", was=None)], "ok", 0),
    ],
)
def test_what_a_report_means(cases: list[CaseResult], verdict: str, code: int) -> None:
    whole = report(*cases)
    error = suite_error(whole)
    assert whole.verdict == verdict and (0 if error is None else error.exit_code) == code
