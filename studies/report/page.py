"""A study's report as one page of HTML that needs nothing else: tables, pictures, and all rows."""

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from helmsman.analysis.plots.picture import image
from helmsman.schemas.study_report import StudyReport
from helmsman.studies.report import words
from helmsman.studies.report.pictures import pictures
from helmsman.studies.report.scenarios import parts_of, scenario_words
from helmsman.studies.summary.ranking import scenario_of

_MOST_DRAWN = 20
"""The number of scenarios that have pictures: each takes a second to draw."""
_TEMPLATE = Path(__file__).with_name("page.html.j2")


def page(report: StudyReport) -> str:
    """Return the page; the same report gives the same text."""
    from jinja2 import Environment, StrictUndefined

    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    sections = [
        (scenario_words(report, part.scenarios[0]), part, list(_drawn(part) if number < _MOST_DRAWN else ()))
        for number, part in enumerate(parts_of(report))
    ]
    return template.from_string(_TEMPLATE.read_text()).render(
        report=report,
        words=words,
        sections=sections,
        circumstances=lambda row: scenario_words(report, scenario_of(row)),
    )


def _drawn(part: StudyReport) -> Iterator[tuple[str, str]]:
    """Yield the titles and pictures of a scenario."""
    for title, figure in pictures(part):
        yield title, b64encode(image(figure, "svg")).decode()
