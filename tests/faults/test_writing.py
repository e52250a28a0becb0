"""Every command that writes, with each of its writes failing in turn, and killed at each: files are whole or not there.

As SQLite's tests do it: a clean run counts what changes files, then the command runs once for each of them."""

import errno
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from daily import one_in
from faults import WRITING, Ended, Fault, Faulty, Forking, failing, killed, short
from faulty_commands import (
    ALONE,
    COMMANDS,
    OLDER,
    TRACED_RUN,
    Command,
    is_one_line,
    is_usual,
    is_whole,
    temporaries,
)
from two_cpus import TWO_CPUS

pytestmark = TWO_CPUS

Plant = Callable[[int], Fault]

FAULTS: dict[str, Plant] = {
    "a full disk": lambda number: failing(WRITING, number, errno.ENOSPC, for_good=True),
    "an error": lambda number: failing(WRITING, number, errno.EIO),
    "SIGKILL": lambda number: killed(WRITING, number),
    "SIGTERM": lambda number: killed(WRITING, number, signal.SIGTERM),
    "a short write": lambda number: short(WRITING, number),
    "a moment without room": lambda number: failing(WRITING, number, errno.ENOSPC),
    "a place that is closed": lambda number: failing(WRITING, number, errno.EACCES),
    "Ctrl-C": lambda number: killed(WRITING, number, signal.SIGINT),
    "an interrupted call": lambda number: failing(INTERRUPTED, number, errno.EINTR),
}
INTERRUPTED = ("create", "write", "sync", "reserve")
"""Calls that a signal may interrupt."""
CODES: dict[str, set[int]] = {
    "a full disk": {6},
    "an error": {2, 6},
    "SIGKILL": {-9},
    "SIGTERM": {143},
    "a short write": set(),
    "a moment without room": {6},
    "a place that is closed": {2},
    "Ctrl-C": {130},
    "an interrupted call": set(),
}
"""Exit codes; none: those of a run without a fault."""
ALL = {**ALONE, **COMMANDS}


@pytest.fixture(scope="module")
def system(forking: Forking, inputs: Path) -> Faulty:
    found = Faulty(forking, inputs, XDG_CACHE_HOME=str(inputs / "outputs" / "cache"))
    assert found.run(TRACED_RUN, *COMMANDS["run"].argv(inputs), "--trace", inputs / "run.parquet").code == 0
    return found


class Trials:
    """Runs of one command; each begins with an empty folder, or one with older files."""

    def __init__(self, system: Faulty, command: Command, inputs: Path) -> None:
        self._system, self._command, self._inputs = system, command, inputs
        self._outputs = inputs / "outputs"
        self._creates = self.writes = 0

    def clean(self) -> None:
        """Without a fault, which must do; the first run makes what libraries keep, the second counts writes."""
        self._tried(Fault.none(), older=False)
        ended = self._tried(Fault.none(), older=False)
        assert is_usual(ended, self._command), ended
        assert all(is_whole(path) for path in self._targets), "whole"
        self._creates, self.writes = ended.counts["create"], ended.count(WRITING)

    def check(self, what: str, number: int, older: bool) -> None:
        """With a fault at a write; what is there afterwards."""
        older = older and self._command.replaces
        ended = self._tried(FAULTS[what](number), older)
        place = f"{what} at {number}, older={older}: {ended}"
        if not ended.met:
            assert what == "an interrupted call", f"no write {number} in {place}"
            return
        # Where a file without a name cannot be had, one with a name is; a folder that is there need not be made.
        spared = ended.counts["create"] > self._creates or (number == 0 and not self._command.replaces)
        expected = CODES[what] or self._command.codes
        assert ended.code in (expected | self._command.codes if spared else expected), place
        if ended.code > 0 and ended.code not in self._command.codes:
            assert is_one_line(ended, self._command), place
        for path in (*self._targets, *self._outputs.glob("cache/helmsman/*")):
            if path.name.startswith("."):
                continue
            if path.exists():
                assert (older and path.read_bytes() == OLDER) or is_whole(path), f"{path} after {place}"
            else:
                assert not older, f"{path} is gone after {place}"
        if what == "SIGKILL":
            next_one = self._again()
            assert next_one.code in self._command.codes, f"{next_one} after {place}"
            assert all(is_whole(path) for path in self._targets), f"{next_one} after {place}"
        else:
            assert not list(temporaries(self._outputs)), f"{list(temporaries(self._outputs))} after {place}"

    @property
    def _targets(self) -> list[Path]:
        return [self._outputs / name for name in self._command.writes.values()]

    def _tried(self, fault: Fault, older: bool) -> Ended:
        shutil.rmtree(self._outputs)
        self._outputs.mkdir()
        for path in self._targets if older else ():
            path.write_bytes(OLDER)
        return self._again(fault)

    def _again(self, fault: Fault | None = None) -> Ended:
        """With what is there; a checkpoint that came to be is where none may be."""
        for path in self._targets if not fault and not self._command.replaces else ():
            if path.exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return self._system.run(self._command.name, *self._command.arguments(self._inputs, self._outputs), fault=fault)


@pytest.fixture(scope="module")
def alone(system: Faulty, inputs: Path) -> dict[str, Trials]:
    """Runs of the commands that do nothing but write, each of which has run without a fault."""
    found = {name: Trials(system, command, inputs) for name, command in ALONE.items()}
    for trials in found.values():
        trials.clean()
    return found


@pytest.mark.parametrize("what", one_in(2, FAULTS))
@pytest.mark.parametrize("name", ALONE)
def test_each_write_may_fail_in_each_way(alone: dict[str, Trials], name: str, what: str) -> None:
    """By turns with an older file and without."""
    trials = alone[name]
    for number in range(trials.writes):
        trials.check(what, number, older=(number + list(FAULTS).index(what)) % 2 == 0)


STEPS = {"plan": 5, "sim": 7, "sim-requests": 5, "run-stored": 5, "bench": 5, "make-checkpoint": 2}
"""Of commands that take long or write often, every so many writes; each of others."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if place % 6 == 0 else pytest.mark.nightly) for place, name in enumerate(COMMANDS)],
)
def test_a_write_of_a_command_may_fail(system: Faulty, inputs: Path, name: str) -> None:
    """Its writes meet one of the faults each."""
    trials = Trials(system, COMMANDS[name], inputs)
    trials.clean()
    for turn, number in enumerate(range(0, trials.writes, STEPS.get(name, 1))):
        trials.check(list(FAULTS)[turn % len(FAULTS)], number, older=turn // len(FAULTS) % 2 == 0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "older"), [(name, older) for name in ALL for older in (False, True)[: 1 + ALL[name].replaces]]
)
@pytest.mark.parametrize("what", FAULTS)
def test_each_write_of_a_command_may_fail_in_each_way(
    system: Faulty, inputs: Path, name: str, what: str, older: bool
) -> None:
    """With the fault at each write in turn."""
    trials = Trials(system, ALL[name], inputs)
    trials.clean()
    for number in range(trials.writes):
        trials.check(what, number, older)


@pytest.mark.parametrize("name", ["plan", "make-checkpoint", "make-gguf"])
def test_a_disk_that_is_really_full(system: Faulty, inputs: Path, tmp_path: Path, name: str) -> None:
    """A file system of as many pages as are free, from none to what is needed. Only root may mount one; planted faults
    (above) are of the same errors, for everybody."""
    command, place = COMMANDS[name], tmp_path / "disk"
    place.mkdir()
    codes = list[int]()
    for size in (4, 32, 256, 2048):
        mounted = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(place)]
        if subprocess.run(mounted, capture_output=True, check=False).returncode:
            pytest.skip("this user may mount no file system; full disks are planted at every write in the tests above")
        try:
            ended = system.run(command.name, *command.arguments(inputs, place))
            codes.append(ended.code)
            assert ended.code == 0 or (ended.code == 6 and is_one_line(ended, command)), ended
            assert all(is_whole(place / each) for each in command.writes.values() if (place / each).exists())
            assert not list(temporaries(place)), "no temporary stays"
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
    assert codes[0] == 6 and codes[-1] == 0
