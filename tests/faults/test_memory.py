"""Memory that runs out, and threads that the system does not start, at any allocation of a command: exit code 6 and one
line, unless the command can do without."""

import errno
from pathlib import Path

import pytest
from faults import Faulty, Forking, failing
from faulty_commands import COMMANDS, is_one_line
from two_cpus import TWO_CPUS

pytestmark = TWO_CPUS

LEAST = 2**17
"""Bytes of an allocation that counts: of caches, weights, workspaces and tables."""


KINDS = {
    **dict.fromkeys(("run", "run-stored", "bench"), ("allocate", "thread")),
    **dict.fromkeys(("plan", "sim", "make-gguf"), ("allocate",)),
}
"""By command what it may be refused: the others start no threads."""


@pytest.fixture(scope="module")
def system(forking: Forking, inputs: Path) -> Faulty:
    return Faulty(forking, inputs, least=LEAST)


def check_refusals(system: Faulty, inputs: Path, name: str, kind: str, step: int) -> int:
    """Refuse each `step`-th allocation or thread: once or from then on, by turns, or both where that is one or all of
    them; how many there are."""
    command, outputs = COMMANDS[name], inputs / "outputs"
    argv, code = command.arguments(inputs, outputs), errno.ENOMEM if kind == "allocate" else errno.EAGAIN
    system.run(command.name, *argv)
    count = system.run(command.name, *argv).counts[kind]
    assert count, "what is planted is met"
    for turn, number in enumerate(range(0, count, step)):
        for for_good in (False, True) if step == 1 or count <= step else (turn % 2 == 1,):
            ended = system.run(command.name, *argv, fault=failing((kind,), number, code, for_good=for_good))
            place = f"{kind} {number} of {count}, for good={for_good}: {ended}"
            assert ended.code in (0, 6), place
            assert ended.code == 0 or is_one_line(ended, command), place
    return count


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in ("run", "bench", "sim") for k in KINDS[n]])
def test_memory_may_run_out(system: Faulty, inputs: Path, name: str, kind: str) -> None:
    check_refusals(system, inputs, name, kind, 80 if kind == "allocate" else 16)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in KINDS.items() for kind in kinds])
def test_memory_may_run_out_anywhere(system: Faulty, inputs: Path, name: str, kind: str) -> None:
    check_refusals(system, inputs, name, kind, 1)
