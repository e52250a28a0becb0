"""Tutorials, how-to guides and the worked examples of the cost model run: every command prints what the page says."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daily import one_in
from page_examples import ROOT, PageRun, blocks_of, matches
from plans import make_hardware
from quick_probes import quick_probes
from remembered import remembered_replicas
from two_cpus import TWO_CPUS

from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.profiles_folder import profiles_folder
from helmsman.schemas.entry_points import added
from helmsman.schemas.hardware import Hardware

DOCS = ROOT / "docs"


@pytest.fixture(autouse=True, scope="module")
def remembered() -> Iterator[None]:
    """The cost of a replica is worked out once for each plan."""
    with remembered_replicas():
        yield


@pytest.fixture
def page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., PageRun]:
    """Makes what runs a page in a folder of its own; unless it is nightly, with a profile and probes that nobody has to
    wait for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")

    def make(page: str, *, nightly: bool = False) -> PageRun:
        run = PageRun(DOCS / page, tmp_path, capsys, nightly)
        if not nightly:
            quick_probes(monkeypatch.setattr)
            run.stands_for["helm-profile"] = lambda _: _profiled()
        return run

    return make


def _profiled() -> int:
    """Leave a record where a profile would be: that of a processor with as many cores as there are here."""
    record = load_hardware("epyc9554-cpu", None)
    cpu = record.devices[0].model_copy(update={"cores": len(Machine.this().cpus), "isa": ()})
    return _kept(record.model_copy(update={"devices": (cpu,)}))


def _kept(record: Hardware) -> int:
    """Leave a record where a profile would be, and print what helm-profile would."""
    profiles_folder().mkdir(parents=True)
    (profiles_folder() / "profile-1.json").write_text(record.to_json())
    sys.stdout.write(_PRINTED)
    return 0


_PRINTED = """AMD EPYC
  cpu       2 cores, reads 9 GB/s
  dram      9 GB
kept as profile-1.json; use it with --hw this
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[str]], int]]:
    """Installs what a page installs, with pip, in a folder of its own that is forgotten afterwards."""
    place, known = tmp_path / "installed", set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])

    def install(words: list[str]) -> int:
        asked = [sys.executable, "-m", "pip", *words[1:], "--no-build-isolation", "--no-index", "--target", str(place)]
        environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        done = subprocess.run(asked, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        added.cache_clear()
        return 0

    yield install
    added.cache_clear()
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(place) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.nightly
@TWO_CPUS
def test_adding_a_strategy(page_run: Callable[..., PageRun], installed: Callable[[list[str]], int]) -> None:
    run = page_run("tutorials/strategy.md")
    run.stands_for |= {"pip install": installed, "helm-profile": lambda _: _kept(make_hardware(vram=120 << 20))}
    assert run.run() == 11


@TWO_CPUS
def test_a_model_on_one_pc(page_run: Callable[..., PageRun]) -> None:
    assert page_run("tutorials/one-pc.md").run() == 6


def test_sizing_a_service(page_run: Callable[..., PageRun]) -> None:
    assert page_run("tutorials/sizing.md").run() == 7


GUIDES = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "how-to").glob("*.md"))


@TWO_CPUS
@pytest.mark.parametrize("page", one_in(4, GUIDES[::-1]))
def test_guides(page: str, page_run: Callable[..., PageRun]) -> None:
    assert page_run(page).run() > 0


@TWO_CPUS
@pytest.mark.nightly
@pytest.mark.parametrize("page", ["tutorials/one-pc.md", "tutorials/sizing.md", "tutorials/strategy.md", *GUIDES])
def test_whole_pages_with_a_real_profile(
    page: str, page_run: Callable[..., PageRun], installed: Callable[[list[str]], int]
) -> None:
    """Machines are profiled, probes are whole, and what takes long is run as well."""
    run = page_run(page, nightly=True)
    run.stands_for["pip install"] = installed
    assert run.run() > 0


EXPLAINED = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "cost-model").glob("*.md"))


@pytest.mark.parametrize("page", EXPLAINED)
def test_worked_examples_of_the_cost_model(page: str, page_run: Callable[..., PageRun]) -> None:
    assert page_run(page).run() == {
        "cost-model/index.md": 1,
        "cost-model/seconds.md": 1,
        "cost-model/clock.md": 1,
        "cost-model/serving.md": 1,
    }.get(page, 0)


def test_what_a_page_does_not_print_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tests above can fail: of each kind of example one that is wrong."""
    page = tmp_path / "page.md"
    wrong = {
        "```console\n$ helm-list formats\n...\nq5_k ...\n...\n```\n": "q5_k",
        "```console\n$ helm-list formats\nf32 ...\n```\n": "helm-list formats",
        "```console\n$ helm-list nothing\n```\n": "exit code 2",
        "```pycon\n>>> 1 + 1\n3\n\n```\n": "Expected",
    }
    for text, told in wrong.items():
        page.write_text(text)
        with pytest.raises(AssertionError, match=told):
            PageRun(page, tmp_path, capsys).run()
    page.write_text("<!-- not run: wrong -->\n" + "".join(wrong) + "<!-- nightly: slow -->\n```console\n$ no\n```\n")
    assert [block.runs(nightly=False) for block in blocks_of(page)] == [False, True, True, True, False]
    assert [block.runs(nightly=True) for block in blocks_of(page)] == [False, True, True, True, True]


def test_dots_stand_for_lines_or_for_a_part_of_one() -> None:
    assert matches(["a", "...", "c ... e"], ["a", "c d e"]) and matches(["a", "..."], ["a"])
    assert matches(["...", "b", "..."], ["a", "b", "b", "c"]) and matches(["[1 .. 2]"], ["[1 .. 2]"])
    assert not matches(["a", "...", "c"], ["a", "b"]) and not matches(["a"], ["a", "b"])
    assert not matches(["[1 .. 2]"], ["[1 to 2]"])
