"""A study's report as one page of HTML that needs nothing else: tables, pictures, and all rows."""

from base64 import b64encode
from pathlib import Path

from helmsman.analysis.plots.picture import image
from helmsman.schemas.study_report import StudyReport
from helmsman.studies.report import words
from helmsman.studies.report.pictures import pictures

_TEMPLATE = Path(__file__).with_name("page.html.j2")


def page(report: StudyReport) -> str:
    """Return the page; the same report gives the same text."""
    from jinja2 import Environment, StrictUndefined

    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    drawn = [(title, b64encode(image(figure, "svg")).decode()) for title, figure in pictures(report)]
    return template.from_string(_TEMPLATE.read_text()).render(report=report, words=words, pictures=drawn)
