"""Every id of a requirement or an erratum that the tree names has a line in docs/references.md."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "references.md"
ROOMS = (
    *(package.parent for package in ROOT.glob("*/__init__.py")),
    *(ROOT / room for room in ("csrc", "docs", "src/helmsman/cli", "tests")),
)
SUFFIXES = {".py", ".pyi", ".h", ".cpp", ".md", ".json"}

ONE = re.compile(r"\b((?:E-)?(?:HELM|PARK|GUPTA|APEX|NEO|MIS|X))-(\d\d)\b((?:(?:\.\.|, (?:and )?| to | and )\d\d\b)*)")
"""An id and the numbers that follow it, as in `HELM-58..61, 65`."""
NEXT = re.compile(r"(\.\.|, (?:and )?| to | and )(\d\d)")


def ids_in(text: str) -> Iterator[str]:
    """Yield the ids of a text, those of a range or a list one by one."""
    for series, first, rest in ONE.findall(text):
        last = int(first)
        yield f"{series}-{last:02d}"
        for joined, number in NEXT.findall(rest):
            through = joined in ("..", " to ")
            for each in range(last + 1 if through else int(number), int(number) + 1):
                yield f"{series}-{each:02d}"
            last = int(number)


def sources() -> Iterator[Path]:
    """Yield the files of the tree that may name ids, but for the page itself."""
    found = [path for room in ROOMS for path in room.rglob("*") if path.suffix in SUFFIXES]
    yield from (path for path in [*found, *ROOT.glob("*.md")] if path != PAGE)


def test_lists_and_ranges_are_ids_one_by_one() -> None:
    assert list(ids_in("(HELM-58..60, 65; E-X-04)")) == ["HELM-58", "HELM-59", "HELM-60", "HELM-65", "E-X-04"]
    assert list(ids_in("GUPTA-03 to 05, NEO-36 and APEX-F018")) == ["GUPTA-03", "GUPTA-04", "GUPTA-05", "NEO-36"]


def test_every_id_has_a_line() -> None:
    lines = re.findall(r"^\| ((?:E-)?[A-Z]+-\d\d) \|", PAGE.read_text(), re.MULTILINE)
    assert len(lines) == len(set(lines)), "an id has two lines"
    missing = {name: path for path in sources() for name in ids_in(path.read_text()) if name not in lines}
    assert not missing, {name: str(path.relative_to(ROOT)) for name, path in sorted(missing.items())}
