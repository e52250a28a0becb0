"""Puts the pages of the site into one folder: those of docs/, those that are made, and the decisions."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from docs.generator.catalogue import catalogue_pages
from docs.generator.commands import command_pages
from docs.generator.documents import document_pages
from docs.generator.library import library_page
from docs.generator.strategies import policies_page, strategies_page

DOCS = Path(__file__).parents[1]
"""The pages that are written by hand."""
ROOT = DOCS.parent
REFERENCE = "reference"
"""The folder of what is made of the code."""
OVERVIEW = "reference.md"
"""The page in docs/ about what is made, which has links to it on the site."""
CONFIGURATION = "zensical.toml"
"""The configuration of the site, in docs/ without the pages that are made."""
_INDEX = re.compile(rf'"{REFERENCE}/(\w+/)index\.md"')
"""In the navigation, the page that lists all of a folder."""
KEPT = (".md", ".svg", ".json", ".css")
"""Endings of what is copied from docs/."""

_CONTENTS = """
## Contents

- [Commands](reference/commands/index.md), each with every option
- [Strategies](reference/strategies.md) and [policies](reference/policies.md)
- [Documents](reference/documents/index.md), field by field
- [Library](reference/library.md)
- Names: [models](reference/catalogue/models.md), [machines](reference/catalogue/machines.md),
  [GPUs](reference/catalogue/gpus.md), [CPUs](reference/catalogue/cpus.md), [formats](reference/catalogue/formats.md)
"""


def reference_pages(root: Path) -> dict[str, str]:
    """Return all pages that are made, by their places under the folder of the reference."""
    return {
        **command_pages(root),
        "strategies.md": strategies_page(),
        "policies.md": policies_page(),
        **document_pages(root / "schemas" / "json"),
        "library.md": library_page(),
        **catalogue_pages(),
    }


def stage(docs: Path, into: Path) -> None:
    """Fill the folder `into`, which is emptied first, with every page of the site and what they show."""
    shutil.rmtree(into, ignore_errors=True)
    for path in sorted(docs.rglob("*")):
        if path.suffix in KEPT and path.is_file():
            place = into / path.relative_to(docs)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    pages = reference_pages(docs.parent)
    for name, text in pages.items():
        _write(into / REFERENCE / name, text)
    for name, title in (("DESIGN", "decisions"), ("CHANGELOG", "changes"), ("SECURITY", "security")):
        text = (docs.parent / f"{name}.md").read_text()
        _write(into / f"{title}.md", text.replace("](docs/", "]("))
    _write(into / OVERVIEW, (docs / OVERVIEW).read_text() + _CONTENTS)
    _write(into.parent / CONFIGURATION, with_pages((docs / CONFIGURATION).read_text(), pages))


def with_pages(configuration: str, pages: Iterable[str]) -> str:
    """Return the site's configuration with all pages of a folder behind the one that lists them."""
    lines = []
    for line in configuration.splitlines():
        lines.append(line)
        if (index := _INDEX.search(line)) is not None:
            below = sorted(name for name in pages if name.startswith(index[1]) and not name.endswith("/index.md"))
            lines += [f'      {{ "{Path(name).stem}" = "{REFERENCE}/{name}" }},' for name in below]
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
