"""A report of the gate as JUnit XML, as CI systems show results: a test case for each case of the suite."""

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from helmsman.gate.report_text import baseline_text, verdict_line
from helmsman.schemas.gate_report import CaseResult, GateReport

_FORBIDDEN = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


def junit_xml(report: GateReport) -> str:
    """Return the XML text. Slower and drifted cases are failures, failed ones errors, undecided ones skipped with the
    reason; what was not ok before either is a skipped case too, since it blocks nothing."""
    root = Element("testsuites")
    suite = SubElement(root, "testsuite", name=_clean(f"helm-check {report.suite}"), timestamp=_clean(report.measured))
    for case in report.cases:
        _add_case(suite, case)
    counts = {tag: len(suite.findall(f"testcase/{tag}")) for tag in ("failure", "error", "skipped")}
    suite.set("tests", str(len(report.cases)))
    for tag, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(plural, str(counts[tag]))
    SubElement(suite, "system-out").text = _clean("\n".join((verdict_line(report), *report.notes)))
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: Element, case: CaseResult) -> None:
    element = SubElement(suite, "testcase", name=_clean(case.case), classname="helm-check")
    tag = _tag(case)
    if tag is not None:
        outcome = SubElement(element, tag, message=_clean(case.reason))
        if tag != "skipped":
            outcome.set("type", case.verdict)
        outcome.text = _clean("\n".join(_details(case)))


def _tag(case: CaseResult) -> str | None:
    if case.verdict == "failed":
        return "error"
    if case.verdict in ("slower", "drift"):
        return "failure" if case.blocks else "skipped"
    return "skipped" if case.verdict == "undecided" else None


def _details(case: CaseResult) -> list[str]:
    figures = [f"{figure.figure}: {figure.verdict}: {figure.reason}" for figure in case.figures]
    remedy = [] if case.remedy is None else [f"remedy: {case.remedy}"]
    return [f"against {baseline_text(case.baseline)}", *figures, *case.changes, *remedy]


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
