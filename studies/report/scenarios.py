"""Divides a study's report by its scenarios, and names these."""

from collections.abc import Iterator

from helmsman.schemas.study import StudyPrices
from helmsman.schemas.study_report import Scenario, StudyReport
from helmsman.studies.summary.costs import prices_named


def parts_of(report: StudyReport) -> Iterator[StudyReport]:
    """Yield what a report says of each scenario, as a report of that scenario alone with all rows."""
    for number, scenario in enumerate(report.scenarios):
        conclusions = {
            "best": tuple(entry for entry in report.best if entry.scenario == number),
            "formats": tuple(entry for entry in report.formats if entry.scenario == number),
            "upgrades": tuple(entry for entry in report.upgrades if entry.scenario == number),
            "sensitivity": tuple(entry for entry in report.sensitivity if entry.scenario == number),
            "cheapest": tuple(row for row in report.cheapest if _is_of(report, row, scenario)),
            "front": tuple(row for row in report.front if _is_of(report, row, scenario)),
        }
        yield report.model_copy(update={"scenarios": (scenario,), **conclusions})


def prices_of(part: StudyReport) -> StudyPrices:
    """Return the prices of a report of one scenario."""
    return prices_named(part.study, part.scenarios[0].prices)


def scenario_words(report: StudyReport, scenario: Scenario) -> str:
    """Write the circumstances of a scenario that others of the report do not share; nothing where there is one."""
    usual = scenario.prompt_tokens + scenario.output_tokens
    words = {
        "prompt_tokens": f"{scenario.prompt_tokens} prompt tokens",
        "output_tokens": f"{scenario.output_tokens} output tokens",
        "context": "" if scenario.context == usual else f"context {scenario.context}",
        "slo": scenario.slo or "no SLO",
        "requests": f"requests {scenario.requests}",
        "target_rate": f"{scenario.target_rate or 0.0:g} requests/s",
        "target_users": f"{scenario.target_users} users",
        "think": f"thinking {scenario.think}",
        "prices": f"prices: {scenario.prices}",
    }
    varied = [word for name, word in words.items() if len({getattr(other, name) for other in report.scenarios}) > 1]
    return ", ".join(filter(None, varied))


def _is_of(report: StudyReport, row: int, scenario: Scenario) -> bool:
    return all(getattr(report.rows[row], name) == getattr(scenario, name) for name in Scenario.model_fields)
