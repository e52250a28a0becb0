"""The folder of a store: what the service removes from it, what it leaves alone, and who may read it."""

import os
import time
from pathlib import Path

import pytest
from web_service import QUESTION, web_site

from helmsman.cli.web import main
from helmsman.service.planner.jobs.store import StorePlaces, held_store
from helmsman.service.planner.jobs.strays import remove_settled_work


def test_strays_are_removed_and_results_kept(tmp_path: Path) -> None:
    with web_site(tmp_path) as site:
        job = site.job("/v1/simulations", {"question": QUESTION})
        before = site.get(job["links"]["result"]).body
    places = StorePlaces(tmp_path)
    for name in ("0" * 64, f".helm-{'0' * 16}", f".{'0' * 64}"):
        (places.results / name).write_bytes(b"stray")
    for name in ("0" * 64, f".helm-{'0' * 16}"):
        (places.work / name).mkdir()
        (places.work / name / "rows.parquet").write_bytes(b"stray")
    with web_site(tmp_path) as site:
        assert site.get(job["links"]["result"]).body == before
    assert len(list(places.results.iterdir())) == 1 and not list(places.work.iterdir())


def test_what_somebody_else_keeps_in_a_store_stays(tmp_path: Path) -> None:
    with web_site(tmp_path):
        pass
    places = StorePlaces(tmp_path)
    kept = [places.results / "thesis.pdf", places.work / "data" / "a", places.results / ("0" * 64) / "b"]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    with web_site(tmp_path):
        pass
    assert all(path.read_bytes() == b"mine" for path in kept)


def test_a_folder_of_something_else_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "results" / ("0" * 64)
    kept.parent.mkdir()
    kept.write_bytes(b"mine")
    assert main(["--port", "0", "--store", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "no store of helm-web" in told and "empty folder" in told and told.count("\n") == 1
    assert kept.read_bytes() == b"mine" and [path.name for path in tmp_path.iterdir()] == ["results"]
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    with held_store(tmp_path / "volume"):
        pass


def test_a_store_is_for_nobody_else_to_read(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with web_site(store) as site:
        site.job("/v1/simulations", {"question": QUESTION})
        modes = {path.name: path.stat().st_mode & 0o077 for path in (store, *store.iterdir())}
    assert {"store", "lock", "jobs.sqlite", "jobs.sqlite-wal", "answers.sqlite", "results", "work"} <= set(modes)
    assert set(modes.values()) == {0}


def test_what_jobs_left_is_removed_once_nobody_writes_there(tmp_path: Path) -> None:
    for name, age_s in (("0" * 64, 7200.0), ("1" * 64, 7200.0), ("2" * 64, 0.0), ("mine", 7200.0)):
        (tmp_path / name).mkdir()
        then = time.time() - age_s
        os.utime(tmp_path / name, (then, then))
    remove_settled_work(tmp_path, {"1" * 64})
    assert {path.name for path in tmp_path.iterdir()} == {"1" * 64, "2" * 64, "mine"}
