"""Pages lead to each other and to files that are there: the README to every page, and pages to what they name."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|pyi|h|cpp|json))`")
"""A file that a page names by its place in the repository; one without a folder is of the folder named before it."""


def linked(page: Path) -> Iterator[Path]:
    """Yield the files to which a page links."""
    yield from ((page.parent / target).resolve() for target in LINK.findall(page.read_text()))


def test_the_readme_leads_to_every_page() -> None:
    """Pages in folders have one that leads to them."""
    from_readme = set(linked(ROOT / "README.md"))
    top = [*DOCS.glob("*.md"), *(ROOT / f"{name}.md" for name in ("DESIGN", "CHANGELOG", "SECURITY"))]
    assert not [path.name for path in top if path not in from_readme]
    found = from_readme.union(*(linked(path) for path in PAGES if path.name == "index.md"))
    assert not [path.name for path in PAGES if path not in found]


def test_links_lead_to_files() -> None:
    for page in (ROOT / "README.md", *PAGES):
        missing = [path.name for path in linked(page) if not path.exists()]
        assert not missing, (page.name, missing)


def test_files_that_pages_name_are_there() -> None:
    for page in PAGES:
        missing = [name for name in FILE.findall(page.read_text()) if not (ROOT / name).exists()]
        assert not missing, (page.name, missing)


def test_the_glossary_is_in_order() -> None:
    table = (DOCS / "glossary.md").read_text().split("\n## ")[0]
    words = re.findall(r"^\| ([^|]+?) \|.*\| `", table, re.MULTILINE)
    assert len(words) > 50
    assert words == sorted(words, key=str.casefold)


def test_what_to_cite_is_this_version() -> None:
    import helmsman

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert (cited["version"], cited["license"], cited["type"]) == (helmsman.__version__, "Apache-2.0", "software")
    assert len(cited["references"]) == 5
