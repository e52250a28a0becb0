"""Damaged inputs to every reader: each is accepted, or refused with an error of ours, and nothing else happens."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Case, Target, fuzz
from targets import TARGETS
from two_cpus import TWO_CPUS

from helmsman.schemas.errors import BadInputError

CASES = {"plan-executed": 60, "plan": 400, "plan-rules": 1000, "gguf": 1000, "trace": 1000, "served": 1000}
"""Of targets that take milliseconds a case; 2,000 of others."""

SEED = 21


def check(name: str, cases: int, seed: int) -> None:
    found = fuzz(TARGETS[name], cases, seed)
    assert not found.failures, "\n".join(map(str, found.failures[:20]))
    assert found.accepted and found.refused, "cases are neither all right nor all wrong"


@pytest.mark.parametrize("name", [pytest.param(name, marks=TWO_CPUS if "executed" in name else ()) for name in TARGETS])
def test_every_reader_refuses_what_it_cannot_use(name: str) -> None:
    check(name, CASES.get(name, 2000), SEED)


@pytest.mark.nightly
@pytest.mark.parametrize("name", TARGETS)
def test_every_reader_for_longer(name: str) -> None:
    check(name, 15 * CASES.get(name, 2000), SEED + 1)


def _forever() -> None:
    while True:
        pass


def _much() -> None:
    bytearray(2**32)


def _gone() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _refused() -> None:
    raise BadInputError("no", remedy="another")


def _lines() -> None:
    raise BadInputError("m" * 10, remedy="r" * 10, value="v", file="a\nb")


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        (_forever, "took more than"),
        (_much, "MemoryError"),
        (_gone, "SIGKILL"),
        (lambda: {}["x"], "KeyError"),
        (_refused, ""),
        (_lines, ""),
        (int, ""),
    ],
    ids=["a hang", "memory", "a crash", "another exception", "refused", "a name with a line", "accepted"],
)
def test_the_harness_notices(behaviour: Callable[[], object], says: str) -> None:
    """The third case behaves so: it alone fails, and those behind it are tried."""

    def prepare(folder: Path) -> Case:
        numbers = iter(range(10))
        return lambda chance: behaviour if next(numbers) == 2 else int

    before = time.process_time()
    found = fuzz(Target("made", prepare), 5, 1)
    assert found.accepted + found.refused + len(found.failures) >= 5
    assert [failure.number for failure in found.failures][:1] == ([2] if says else [])
    assert not says or says in found.failures[0].what
    assert time.process_time() - before < 30
