"""Histories: what is added stays, what was changed is refused, and what failed leaves all as it was."""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import make_hardware

from helmsman.gate import history
from helmsman.gate.history import MANIFEST, accept_entry, append, read_history, read_record
from helmsman.schemas.errors import BadInputError, HardwareUnavailableError
from helmsman.schemas.gate_history import GateEntry, MeasuredEntry
from helmsman.schemas.read import digest

RECORD = make_hardware()


def entry(measured: str = "2026-01-01T00:00:00Z", machine: str = "one", seconds: float = 1.0) -> MeasuredEntry:
    info = GateEntry(
        measured=measured,
        helm="0.1.0",
        machine=machine,
        plan="cpu(1)",
        plan_sha256="0" * 64,
        hardware=RECORD.name,
        hardware_sha256=digest(RECORD),
        predicted={"step": 1.0},
        simulated={"step": 1.1},
        verdict="ok",
    )
    return MeasuredEntry(info, {"step": (seconds, 2 * seconds), "request": (3.0, 4.0)})


def test_what_was_added_is_read_in_order(tmp_path: Path) -> None:
    names = [append(tmp_path, entry(seconds=float(number)), RECORD) for number in (1, 2, 3)]
    read = read_history(tmp_path)
    assert [each.name for each in read.entries] == names == sorted(names)
    assert read.entries[1].entry == entry(seconds=2.0)
    assert read_record(tmp_path, digest(RECORD)) == RECORD
    assert read_record(tmp_path, "f" * 64) is None


def test_files_are_only_added(tmp_path: Path) -> None:
    append(tmp_path, entry(), RECORD)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != MANIFEST}
    append(tmp_path, entry(), RECORD)
    assert {path: path.read_bytes() for path in before} == before
    assert len(read_history(tmp_path).entries) == 2


def test_the_baseline_is_what_was_accepted_last_on_the_machine(tmp_path: Path) -> None:
    first, second = (append(tmp_path, entry(machine=machine), RECORD) for machine in ("one", "two"))
    assert read_history(tmp_path).baseline("one") is None
    accept_entry(tmp_path, first)
    accept_entry(tmp_path, second)
    read = read_history(tmp_path)
    baselines = [read.baseline(machine) for machine in ("one", "two", "three")]
    assert [each and each.name for each in baselines] == [first, second, None]
    assert [each.accepted for each in read.entries] == [True, True]


def test_a_history_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_history(tmp_path / "none").entries == ()


def test_every_changed_file_is_refused(tmp_path: Path) -> None:
    append(tmp_path, entry(), RECORD)
    for path in [path for path in tmp_path.iterdir() if not path.name.startswith(".")]:
        content = path.read_bytes()
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        with pytest.raises(BadInputError) as caught:
            read_history(tmp_path)
        assert caught.value.file == str(path) and caught.value.remedy
        path.write_bytes(content)
    assert len(read_history(tmp_path).entries) == 1


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    name = append(tmp_path, entry(), RECORD)
    (tmp_path / name).unlink()
    with pytest.raises(BadInputError, match="cannot be read"):
        read_history(tmp_path)


def test_a_file_that_the_manifest_does_not_know_is_told_and_not_used(tmp_path: Path) -> None:
    name = append(tmp_path, entry(), RECORD)
    (tmp_path / f"x{name}").write_bytes((tmp_path / name).read_bytes())
    read = read_history(tmp_path)
    assert read.unlisted == (f"x{name}",) and len(read.entries) == 1


def test_a_manifest_that_accepts_what_it_does_not_list_is_refused(tmp_path: Path) -> None:
    append(tmp_path, entry(), RECORD)
    path = tmp_path / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"accepted": ["other.parquet"]}))
    with pytest.raises(BadInputError) as caught:
        read_history(tmp_path)
    assert caught.value.field == "accepted" and caught.value.value == "other.parquet"


def test_entries_hold_times(tmp_path: Path) -> None:
    append(tmp_path, replace(entry(), samples={"step": (1.0, -1.0)}), RECORD)
    with pytest.raises(BadInputError, match="not a time"):
        read_history(tmp_path)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_full_disk_leaves_the_history_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Of the three files that the first entry writes, `failing` is the one for which there is no room."""
    real: Callable[[int], Any] = os.fsync
    calls = iter(range(1, 10))

    def full(descriptor: int) -> None:
        if next(calls) == failing:
            raise OSError(errno.ENOSPC, "no space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HardwareUnavailableError, match="no room on the disk"):
        append(tmp_path, entry(), RECORD)
    monkeypatch.undo()
    assert read_history(tmp_path).entries == ()
    append(tmp_path, entry(), RECORD)
    read = read_history(tmp_path)
    assert len(read.entries) == 1 and read.unlisted == ()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".helm-")]


def test_one_process_changes_a_history_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an entry is added, the lock cannot be had a second time."""
    import fcntl

    def refused(*arguments: Any) -> None:
        other = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)

    monkeypatch.setattr(history, "_replace", refused)
    append(tmp_path, entry(), RECORD)
