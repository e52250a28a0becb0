"""Damaged inputs to every reader: each is accepted, or refused with an error of ours, and nothing else happens."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from targets import TARGETS
from two_cpus import TWO_CPUS

CASES = {"plan-executed": 10, "plan": 60, "plan-rules": 60}
"""Of targets that take milliseconds a case; 100 of others."""

LONGER = {"plan-executed": 900, "plan": 6000, **dict.fromkeys(("plan-rules", "gguf", "trace", "served"), 15000)}
"""The same, for longer; 30,000 of others."""

SEED = 21

HERE = Path(__file__).parent

Fuzzed = Callable[..., dict[str, Any]]
"""What became of a target's cases, with arguments of the harness."""


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    """Ask one process that has one thread, for all tests: pytest's may fork while another thread holds a lock."""
    folders = [HERE.parents[1] / "src", HERE.parent / "support", HERE.parent / "executor", HERE, HERE.parents[1]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    argv = [sys.executable, str(HERE / "harness.py"), "--asked"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        asking, answers = process.stdin, process.stdout
        assert asking is not None and answers is not None

        def ask(name: str, **options: object) -> dict[str, Any]:
            words = (f"--{option} {value}" for option, value in options.items())
            asking.write(f"'{name}' --json {' '.join(words)}\n")
            asking.flush()
            line = answers.readline()
            assert line, "the harness has ended"
            found: dict[str, Any] = json.loads(line)
            return found

        yield ask
        asking.close()
    assert process.returncode == 0


def check(fuzzed: Fuzzed, name: str, cases: int, seed: int) -> None:
    found = fuzzed(name, cases=cases, seed=seed)
    assert not found["failures"], "\n".join(found["failures"][:20])
    assert found["accepted"] and found["refused"], "cases are neither all right nor all wrong"


@pytest.mark.parametrize("name", [pytest.param(name, marks=TWO_CPUS if "executed" in name else ()) for name in TARGETS])
def test_every_reader_refuses_what_it_cannot_use(fuzzed: Fuzzed, name: str) -> None:
    check(fuzzed, name, CASES.get(name, 100), SEED)


@pytest.mark.nightly
@pytest.mark.parametrize("name", TARGETS)
def test_every_reader_for_longer(fuzzed: Fuzzed, name: str) -> None:
    check(fuzzed, name, LONGER.get(name, 30_000), SEED + 1)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a hang", "took more than"),
        ("a wait", "waits for"),
        ("memory", "MemoryError"),
        ("a crash", "SIGKILL"),
        ("another exception", "KeyError"),
        ("refused", ""),
        ("accepted", ""),
    ],
)
def test_the_harness_notices(fuzzed: Fuzzed, name: str, says: str) -> None:
    """The third case behaves so: it alone fails, and those behind it are tried."""
    silence = {"silence": 3} if name == "a wait" else {}
    found = fuzzed(name, cases=5, seed=1, module="misbehaving", seconds=0.3, **silence)
    assert found["accepted"] + found["refused"] + len(found["failures"]) == 5
    assert [each.partition(": ")[0] for each in found["failures"]] == ([f"{name}, seed 1, case 2"] if says else [])
    assert not says or says in found["failures"][0]
