"""The pages of the cost model leave nothing out: every module with equations, every erratum that Helm applies."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "cost-model"
TEXT = "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.md")))
NUMBERED = re.compile(r"^## ([BMTCPS])(\d+) ", re.MULTILINE)

ROOMS = ("planner/cost", "planner/prediction", "timing")
WITHOUT_EQUATIONS = {
    "planner/cost/plan_costs.py",  # which of the options a plan was made with
}


def test_every_module_with_equations_is_named() -> None:
    modules = [path for room in ROOMS for path in (ROOT / room).glob("*.py") if path.name != "__init__.py"]
    names = {path.relative_to(ROOT).as_posix() for path in modules} - WITHOUT_EQUATIONS
    assert len(names) > 25
    assert not sorted(name for name in names if f"`{name}`" not in TEXT)


@pytest.mark.parametrize(
    ("page", "letter"),
    [("bytes", "B"), ("memory", "M"), ("seconds", "T"), ("clock", "C"), ("prediction", "P"), ("serving", "S")],
)
def test_equations_are_numbered_in_order_and_say_where_they_are(page: str, letter: str) -> None:
    text = (FOLDER / f"{page}.md").read_text()
    numbers = NUMBERED.findall(text)
    assert numbers == [(letter, str(number)) for number in range(1, len(numbers) + 1)]
    assert f"{letter}1 to {letter}{len(numbers)}" in (FOLDER / "index.md").read_text()
    for section in text.split("\n## ")[1:]:
        title = section.splitlines()[0]
        if re.match(rf"{letter}\d+ ", title):
            assert "```math" in section or "\n| " in section, title
            assert "**Code**" in section or page == "bytes", title


def test_every_erratum_that_is_applied_is_explained() -> None:
    table = (ROOT / "docs" / "references.md").read_text().split("## Errata")[1]
    applied = [
        name for name, helm in re.findall(r"^\| (E-[A-Z]+-\d\d) \|.*\| ([^|]*) \|$", table, re.MULTILINE) if helm
    ]
    explained = (FOLDER / "errata.md").read_text()
    assert len(applied) > 50
    assert not [name for name in applied if not re.search(rf"\*\*[^*]*{name}", explained)]


def test_links_to_equations_name_the_equation() -> None:
    """`[T5](#t5-inputs-of-products)`: what a reader clicks and where it leads are the same number."""
    for number, anchor in re.findall(r"\[([BMTCPS]\d+)\]\([\w./-]*#([\w-]+)\)", TEXT):
        assert anchor.startswith(f"{number.lower()}-"), (number, anchor)
