"""Damaged inputs to every reader: each is accepted, or refused with an error of ours, and nothing else happens."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from targets import TARGETS
from two_cpus import TWO_CPUS

CASES = {"plan-executed": 60, "plan": 400, "plan-rules": 1000, "gguf": 1000, "trace": 1000, "served": 1000}
"""Of targets that take milliseconds a case; 2,000 of others."""

SEED = 21


HERE = Path(__file__).parent


def fuzzed(name: str, cases: int, seed: int, module: str = "targets", **changes: str) -> dict[str, Any]:
    """What became of cases, in a process that has one thread: pytest's may fork while another holds a lock."""
    folders = [HERE.parents[1] / "src", HERE.parent / "support", HERE.parent / "executor", HERE, HERE.parents[1]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), **changes}
    argv = [name, "--module", module, "--cases", str(cases), "--seed", str(seed), "--json"]
    done = subprocess.run(
        [sys.executable, str(HERE / "harness.py"), *argv], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode in (0, 4), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(name: str, cases: int, seed: int) -> None:
    found = fuzzed(name, cases, seed)
    assert not found["failures"], "\n".join(found["failures"][:20])
    assert found["accepted"] and found["refused"], "cases are neither all right nor all wrong"


@pytest.mark.parametrize("name", [pytest.param(name, marks=TWO_CPUS if "executed" in name else ()) for name in TARGETS])
def test_every_reader_refuses_what_it_cannot_use(name: str) -> None:
    check(name, CASES.get(name, 2000), SEED)


@pytest.mark.nightly
@pytest.mark.parametrize("name", TARGETS)
def test_every_reader_for_longer(name: str) -> None:
    check(name, 15 * CASES.get(name, 2000), SEED + 1)


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
def test_the_harness_notices(name: str, says: str) -> None:
    """The third case behaves so: it alone fails, and those behind it are tried."""
    found = fuzzed(name, 5, 1, "misbehaving", **({"HELM_FUZZ_SILENCE": "5"} if name == "a wait" else {}))
    assert found["accepted"] + found["refused"] + len(found["failures"]) == 5
    assert [each.partition(": ")[0] for each in found["failures"]] == ([f"{name}, seed 1, case 2"] if says else [])
    assert not says or says in found["failures"][0]
