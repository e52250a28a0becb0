"""The site: it is built without a warning, needs nobody else, and its reference has everything that the code has.

It is built at night, as that takes ten seconds. Every day `test_links_lead_to_files` (test_pages.py) follows links of
its pages, and `test_the_navigation_leads_to_pages` those of its navigation."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from docs.generator.commands import options_of, parsers_of
from docs.generator.documents import fields_of
from docs.generator.staged import CONFIGURATION, DOCS, ROOT, reference_pages, stage, with_pages
from docs.generator.strategies import offered

import helmsman
from helmsman.planner.registry import OWN, RECOMMENDED, method
from helmsman.scheduler.policies import POLICIES

FORMULA = re.compile(r"^```math\n", re.MULTILINE)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages that are made of the code."""
    return reference_pages(ROOT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a link or an anchor that leads nowhere fails."""
    place = tmp_path_factory.mktemp("site")
    stage(DOCS, place / "docs")
    asked = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(place / CONFIGURATION)]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "site"


@pytest.mark.nightly
def test_every_page_is_there(site: Path, pages: dict[str, str]) -> None:
    wanted = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    wanted |= {Path("reference", name).with_suffix(".html") for name in pages}
    wanted |= {Path(f"{name}.html") for name in ("decisions", "changes", "security")}
    assert wanted <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert not [path.name for path in site.rglob("*") if path.suffix == ".py"]


@pytest.mark.nightly
def test_reading_asks_nobody(site: Path) -> None:
    """Nothing is loaded from other sites: scripts, styles, fonts and pictures are of this one."""
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert not re.findall(r'(?:src|srcset)="(?:https?:)?//', text), path
        assert not re.findall(r'<link[^>]+href="(?:https?:)?//', text), path
        assert "{{" not in text, path


@pytest.mark.nightly
def test_formulas_are_drawn(site: Path) -> None:
    for path in (DOCS / "cost-model").glob("*.md"):
        drawn = (site / "cost-model" / path.name).with_suffix(".html").read_text()
        assert drawn.count("<math ") == len(FORMULA.findall(path.read_text())), path.name
        assert "\\frac" not in drawn and "\\text" not in drawn, path.name


def test_the_navigation_leads_to_pages(pages: dict[str, str]) -> None:
    """To every page once."""
    configuration = with_pages((DOCS / CONFIGURATION).read_text(), pages)
    named = re.findall(r'"([\w/-]+\.md)"', json.dumps(tomllib.loads(configuration)["project"]["nav"]))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    made = {f"reference/{name}" for name in pages} | {"decisions.md", "changes.md", "security.md"}
    assert sorted(named) == sorted(written | made)


def test_every_option_of_every_command_is_told(pages: dict[str, str]) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, target in scripts.items():
        text = pages[f"commands/{name}.md"]
        assert f"]({name}.md)" in pages["commands/index.md"]
        for parser in parsers_of(name, target.split(":")[0]):
            told = [written for _, written, _ in options_of(parser)]
            assert len(told) > 5
            assert not [written for written in told if f"| `{written}` |" not in text], name


def test_every_strategy_and_policy_is_told(pages: dict[str, str]) -> None:
    for name in (RECOMMENDED, *OWN):
        part = _section(pages["strategies.md"], name)
        assert not [field.name for field, _ in offered(method(name)) if f"| `{field.name}` |" not in part], name
    for name, policy in POLICIES.items():
        part = _section(pages["policies.md"], name)
        assert not [option for option in policy.options if f"| `{option}` |" not in part], name


def _section(page: str, name: str) -> str:
    (part,) = [part for part in page.split("\n## ") if part.startswith(f"`{name}`\n")]
    return part


def test_every_field_of_every_document_is_told(pages: dict[str, str]) -> None:
    schemas = sorted((ROOT / "schemas" / "json").glob("*.schema.json"))
    assert len(schemas) > 25
    for path in schemas:
        schema, text = json.loads(path.read_text()), pages[f"documents/{path.name.removesuffix('.schema.json')}.md"]
        for part in (schema, *schema.get("$defs", {}).values()):
            assert not [name for name, _ in fields_of(part) if f"| `{name}` |" not in text], path.name


def test_every_public_name_is_told(pages: dict[str, str]) -> None:
    assert not [name for name in helmsman._HOMES if f"`{name}`" not in pages["library.md"]]


def test_paths_of_this_machine_are_in_no_page(pages: dict[str, str]) -> None:
    assert not [name for name, text in pages.items() if str(ROOT) in text or str(Path.home()) in text.split()]
