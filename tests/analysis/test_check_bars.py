"""The picture of a check: bars of what was predicted and measured, as long as the report says."""

from collections.abc import Callable

import pytest
from apart import check_apart

from helmsman.analysis.check import check
from helmsman.analysis.plots.check_bars import draw_check
from helmsman.analysis.report import document
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.schemas.check_report import CheckReport
from helmsman.schemas.plan import Plan
from helmsman.schemas.trace import Trace


@pytest.fixture
def report(plan: Plan, run: Callable[..., Trace]) -> CheckReport:
    trace = run(lambda task, run: 1.2, runs=2)
    return document(plan, check(plan, cost_model(plan), trace, None, 0.08))


def test_bars_are_as_long_as_the_report_says(report: CheckReport) -> None:
    figure = draw_check(report)
    assert len(figure.axes) == 2 and "missed" in figure.texts[0].get_text()
    for axes, total, phase in zip(figure.axes, (report.step, report.ttft), ("decode", "prefill"), strict=True):
        assert total is not None
        scale = 1e3 if "ms" in axes.get_xlabel() else 1.0
        terms = sorted((term for term in report.terms if term.phase == phase), key=lambda term: -term.measured)
        rows = [total, *terms[:14]]
        widths = [bar.get_width() for bar in axes.patches]
        assert widths == pytest.approx([scale * seconds for row in rows for seconds in (row.scaled, row.measured)])
        words = [text.get_text() for text in axes.texts]
        assert [word for word in words if word.endswith("  +20.0%")] == words[1::2] and len(words) == 2 * len(rows)
        left = len(terms) - 14
        assert (f"{left} shorter terms" in axes.get_xlabel()) == (left > 0)
    check_apart(figure)


def test_a_check_of_decode_steps_alone_has_one_panel(report: CheckReport) -> None:
    now = report.at_run_speeds.model_copy(update={"ttft_s": None})
    assert len(draw_check(report.model_copy(update={"ttft": None, "at_run_speeds": now})).axes) == 1
