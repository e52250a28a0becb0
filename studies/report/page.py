"""A study's report as one page of HTML that needs nothing else, tables, pictures and all rows; and its pictures as
files."""

import re
from base64 import b64encode
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from helmsman.analysis.plots.picture import image
from helmsman.schemas.study_report import StudyReport
from helmsman.studies.report import words
from helmsman.studies.report.pictures import pictures
from helmsman.studies.report.scenarios import parts_of, scenario_words
from helmsman.studies.summary.ranking import scenario_of

_MOST_DRAWN = 20
"""The number of scenarios that have pictures: each takes a second to draw."""
_LONGEST_NAME = 100
"""Letters of a picture's name that say what it shows."""
_TEMPLATE = Path(__file__).with_name("page.html.j2")


def page(report: StudyReport) -> str:
    """Return the page; the same report gives the same text."""
    from jinja2 import Environment, StrictUndefined

    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    sections = [
        (scenario_words(report, part.scenarios[0]), part, list(_encoded(part) if number < _MOST_DRAWN else ()))
        for number, part in enumerate(parts_of(report))
    ]
    return template.from_string(_TEMPLATE.read_text()).render(
        report=report,
        words=words,
        sections=sections,
        circumstances=lambda row: scenario_words(report, scenario_of(row)),
    )


def picture_files(report: StudyReport) -> Iterator[tuple[str, bytes]]:
    """Yield names of files, numbered, and the pictures (SVG) that the page has."""
    number = 0
    for part in islice(parts_of(report), _MOST_DRAWN):
        for title, figure in pictures(part):
            number += 1
            words = re.findall(r"[a-z0-9.]+", f"{title} {scenario_words(report, part.scenarios[0])}".lower())
            yield f"{number:02d}-{'-'.join(words)[:_LONGEST_NAME]}.svg", image(figure, "svg")


def _encoded(part: StudyReport) -> Iterator[tuple[str, str]]:
    """Yield the titles and pictures of a scenario, as a page holds them."""
    for title, figure in pictures(part):
        yield title, b64encode(image(figure, "svg")).decode()
