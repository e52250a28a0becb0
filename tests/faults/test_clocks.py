"""Clocks that misbehave: the system's is set to another time, CLOCK_MONOTONIC stands still for a while."""

import json
import os
from pathlib import Path

import pytest
from faults import Fault, Faulty, Forking
from faulty_commands import COMMANDS, PROFILE, is_one_line
from two_cpus import TWO_CPUS

pytestmark = TWO_CPUS

DAY_S = 86400.0


def standing(number: int, seconds: float = 0.05) -> Fault:
    """CLOCK_MONOTONIC stands still from reading `number` on."""
    return Fault(("clock",), number, number, "stand", seconds=seconds)


def set_by(seconds: float, number: int) -> Fault:
    """The system's clock is set from reading `number` on."""
    return Fault(("clock",), number, number, "set", jump=seconds)


@pytest.fixture(scope="module")
def system(forking: Forking, inputs: Path) -> Faulty:
    return Faulty(forking, inputs, XDG_CACHE_HOME=str(inputs / "cache"))


@pytest.mark.parametrize("name", ["run", pytest.param("plan", marks=pytest.mark.nightly)])
def test_a_clock_may_stand_still_and_be_set(system: Faulty, inputs: Path, name: str) -> None:
    check_clocks(system, inputs, name, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("check", "make-checkpoint", "make-gguf")])
def test_a_clock_may_stand_still_and_be_set_at_any_time(system: Faulty, inputs: Path, name: str) -> None:
    check_clocks(system, inputs, name, 20)


def check_clocks(system: Faulty, inputs: Path, name: str, points: int) -> None:
    """Let clocks misbehave at `points` readings in the first half of a run: it ends as one without does, or says that
    what it measured took no time. Others read clocks as often as they have to wait: later ones may never come."""
    command = COMMANDS[name]
    argv = command.arguments(inputs, inputs / "outputs")
    system.run(command.name, *argv)
    count = system.run(command.name, *argv).counts["clock"]
    for point in range(points):
        number = (2 * point + 1) * count // (4 * points)
        for fault in (standing(number), set_by(-DAY_S, number), set_by(DAY_S, number)):
            ended = system.run(command.name, *argv, fault=fault)
            still = name == "bench" and ended.code == 6 and "the clock stood still" in ended.err
            assert still or (ended.code, ended.err) == (0, ""), f"{fault} of {count}: {ended}"


def test_times_are_positive_while_the_clock_stands_still(system: Faulty, inputs: Path) -> None:
    """Whatever falls within one reading of the clock, no rate is a division by zero. That a probe of 0 s is an error is
    asserted without a clock in tests/executor/test_rates.py."""
    command = COMMANDS["bench"]
    argv = [*(str(word) for word in command.argv(inputs)), "--json"]
    for number in (0, 50, 100, 200, 400):
        ended = system.run(command.name, *argv, fault=standing(number, 0.5))
        told = json.loads(ended.out)
        assert ended.code == (6 if "error" in told else 0), ended
        assert is_one_line(ended, command) if "error" in told else ended.err == "", ended
        if "error" in told:
            assert told["error"]["code"] == "disturbed" and "the clock stood still" in told["error"]["message"]
        else:
            assert all(test["avg_ts"] > 0 for test in told["results"])


def test_the_profile_kept_last_is_the_newest(system: Faulty, inputs: Path) -> None:
    """Also where the clock was set back in between. Files get times from the kernel, which is not told of faults: the
    older one is of tomorrow here."""
    cache = inputs / "cache" / "helmsman"
    assert system.run(PROFILE, "-q").code == 0
    (before,) = cache.glob("*.json")
    later = before.stat().st_mtime + DAY_S
    os.utime(before, (later, later))
    assert system.run(PROFILE, "-q").code == 0
    newest = max(cache.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    assert newest != before
