"""The files of the web page: nothing from elsewhere, nothing inline, small, vendored files as they were published."""

import hashlib
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

from together import together

from helmsman.service.planner.page_files import KINDS, PageFiles, page_folder
from helmsman.service.planner.questions.catalogue import FIRST

PAGE = page_folder()
VENDOR = PAGE / "vendor"
MOST_BYTES = 1_000_000
LONGEST = 300
OWN = sorted(path for path in PAGE.rglob("*") if path.suffix in (".html", ".js", ".css") and path.parent != VENDOR)
MODULES = [path for path in OWN if path.suffix == ".js"]


class Markup(HTMLParser):
    """Notes what is inline in a page, its ids, and the files that it names."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.inline, self.ids, self.files = list[str](), list[str](), list[str]()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        self.ids += [given["id"]] if given.get("id") else []
        self.files += [value for name in ("src", "href") if (value := given.get(name)) and value.startswith("assets/")]


def test_the_first_question_is_the_one_that_workers_begin_with() -> None:
    question = (PAGE / "question.js").read_text()
    names = re.findall(r'^  (?:model|machine): { name: "([^"]+)" },$', question, re.MULTILINE)
    assert tuple(names) == FIRST


def test_there_is_a_page() -> None:
    assert (PAGE / "index.html").is_file()
    assert len(MODULES) > 20


@together("path", OWN)
def test_nothing_comes_from_elsewhere(path: Path) -> None:
    namespaces = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z]{2,}[^\s\"']*", namespaces) == []
    assert "data:" not in re.sub(r'"data:"|startsWith\("data:"\)', "", namespaces)


def test_nothing_is_inline() -> None:
    assert Markup(PAGE / "index.html").inline == []
    for path in MODULES:
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            path.name
        )
        assert 'setAttribute("style"' not in text, path.name


def test_ids_are_there_once_and_files_exist() -> None:
    markup = Markup(PAGE / "index.html")
    assert len(markup.ids) == len(set(markup.ids))
    assert [name for name in markup.files if not (PAGE / name.removeprefix("assets/")).is_file()] == []
    known = set(markup.ids) | {made for path in MODULES for made in re.findall(r'\bid: "([\w-]+)"', path.read_text())}
    named = {name for path in MODULES for name in re.findall(r'byId\("([\w-]+)"\)', path.read_text())}
    assert named - known - {"serve-rate", "serve-ttft", "serve-tpot"} == {
        name for name in named - known if name.startswith("study-")
    }


@together("path", MODULES)
def test_modules_import_what_there_is(path: Path) -> None:
    for names, target in re.findall(
        r"^import (?:\{([^}]*)\}|\w+) from \"(\./[^\"]+)\"", path.read_text(), re.MULTILINE
    ):
        imported = path.parent / target
        assert imported.is_file(), target
        exported = imported.read_text()
        for name in filter(None, (part.strip() for part in names.split(","))):
            assert re.search(rf"^export (?:async )?(?:function\*?|const|class) {name}\b", exported, re.MULTILINE), name


@together("path", OWN)
def test_files_are_one_idea_each(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


def test_all_of_it_is_small() -> None:
    served = [path for path in PAGE.rglob("*") if path.is_file() and path.suffix in KINDS]
    assert sum(path.stat().st_size for path in served) <= MOST_BYTES
    files = PageFiles(PAGE)
    for path in served:
        content = path.read_bytes()
        assert b"@import" in content or files.get(str(path.relative_to(PAGE))).content == content


def test_a_sheet_has_those_that_it_imports_in_their_places(tmp_path: Path) -> None:
    for name, text in (("all", '@import "one.css";\n@import "two.css";\n'), ("one", "a {}"), ("two", "b {}")):
        (tmp_path / f"{name}.css").write_text(text)
    files = PageFiles(tmp_path)
    assert files.get("all.css").content == b"a {}\nb {}\n"
    (tmp_path / "two.css").write_text("c {}")
    os.utime(tmp_path / "two.css", ns=(1, 1))
    assert files.get("all.css").content == b"a {}\nc {}\n"
    page = PageFiles(PAGE).get("style/page.css").content
    assert b"@import" not in page
    assert (PAGE / "style" / "narrow.css").read_bytes() in page


def test_vendored_files_are_those_that_were_published() -> None:
    sums = dict(reversed(line.split("  ")) for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    assert {"uPlot.esm.js", "uPlot.min.css", "inter-latin-wght-normal.woff2"} <= set(sums)
    for name, digest in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    others = {path.name for path in VENDOR.iterdir()} - set(sums)
    assert others <= {"SHA256SUMS", "package.json", "package-lock.json"}


def test_vendored_versions_are_locked() -> None:
    wanted = json.loads((VENDOR / "package.json").read_text())["dependencies"]
    locked = json.loads((VENDOR / "package-lock.json").read_text())["packages"]
    for name, release in wanted.items():
        assert locked[f"node_modules/{name}"]["version"] == release
        assert locked[f"node_modules/{name}"]["integrity"].startswith("sha512-")
    assert f"v{wanted['uplot']}" in (VENDOR / "uPlot.esm.js").read_text()[:500]
