"""Runs many damaged inputs through what reads them, in forked workers that a hang, a crash or too much memory cannot
take along: `python tests/fuzz/harness.py --help`. A process of its own, with one thread: what other threads hold when
a process forks is held for ever in the child.

A case is its number: the same target, seed and number make the same input. Of every case one of two things is true
afterwards: it was accepted, or it was refused with an error of ours, one line that names a remedy or a place. Anything
else is a failure: another exception, more than SECONDS, more than MEMORY bytes, the end of the process."""

import argparse
import json
import os
import resource
import select
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from types import FrameType
from typing import NoReturn

from helmsman.cli.output import say
from helmsman.schemas.errors import HelmError

SECONDS = 2.0
"""That a case may take, of processor time: machines that run tests are busy."""
MEMORY = 2**30
"""Bytes of address space that a case may need beyond what its worker has."""
SILENCE = float(os.environ.get("HELM_FUZZ_SILENCE", "60"))
"""Seconds without a word from a worker after which it is taken to wait for ever: cases take milliseconds."""
CHUNK = 250
"""Cases between two workers: what one leaves behind does not grow."""

Case = Callable[[Random], Callable[[], object]]
"""Makes a case's input, and what reads it."""


@dataclass(frozen=True)
class Target:
    """What is tried: `prepare(folder)`, called once a worker, returns what makes cases."""

    name: str
    prepare: Callable[[Path], Case]


@dataclass(frozen=True)
class Failure:
    """A case that ended as none may."""

    target: str
    seed: int
    number: int
    what: str

    def __str__(self) -> str:
        return f"{self.target}, seed {self.seed}, case {self.number}: {self.what}"


@dataclass(frozen=True)
class Outcome:
    """How many cases were accepted and how many refused, and what failed."""

    accepted: int
    refused: int
    failures: tuple[Failure, ...]


class _HangError(BaseException):
    """A case that does not end."""


@dataclass(frozen=True)
class Limits:
    """What a case may take: seconds of processor time, bytes of address space (or None for any), seconds in silence."""

    seconds: float = SECONDS
    memory: int | None = MEMORY
    silence: float = SILENCE


def fuzz(target: Target, cases: int, seed: int, first: int, limits: Limits) -> Outcome:
    """Try cases `first` to `first + cases` of a target."""
    accepted = refused = 0
    failures: list[Failure] = []
    at, end = first, first + cases
    while at < end:
        stop = min(end, at + CHUNK)
        reached, counted, found = _in_worker(target, seed, at, stop, limits)
        accepted, refused = accepted + counted[0], refused + counted[1]
        failures += found
        at = reached
    return Outcome(accepted, refused, tuple(failures))


def _in_worker(target: Target, seed: int, first: int, stop: int,
               limits: Limits) -> tuple[int, tuple[int, int], list[Failure]]:  # fmt: skip
    """(the case to go on with, (accepted, refused), failures) of a forked process that tries cases in order."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(target, seed, first, stop, limits, writer)
    os.close(writer)
    at, counted, failures, silent = first, [0, 0], list[Failure](), False
    with os.fdopen(reader, "rb", buffering=0) as stream:
        rest = b""
        while not (silent := not select.select([stream], [], [], limits.silence)[0]) and (read := stream.read(2**16)):
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                number, what = json.loads(line)
                at = number + 1
                if what in ("accepted", "refused"):
                    counted[what == "refused"] += 1
                else:
                    failures.append(Failure(target.name, seed, number, what))
    if silent:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if status != 0:
        failures.append(Failure(target.name, seed, at, f"waits for {limits.silence:g} s" if silent else _end(status)))
        at += 1
    return at, (counted[0], counted[1]), failures


def _end(status: int) -> str:
    """How a worker ended, by what waiting for it told."""
    if os.WIFSIGNALED(status):
        return f"the process ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit {os.WEXITSTATUS(status)}"


def _work(target: Target, seed: int, first: int, stop: int, limits: Limits, writer: int) -> NoReturn:
    """A worker's life: one message a case; whatever it has open is left as it is at the end."""
    code = 1
    try:
        with os.fdopen(writer, "w") as stream, tempfile.TemporaryDirectory(prefix="helm-fuzz-") as folder:
            case = target.prepare(Path(folder))
            signal.signal(signal.SIGPROF, _hang)
            for number in range(first, stop):
                what = _tried(case, Random(f"{target.name} {seed} {number}"), limits)
                stream.write(json.dumps((number, what)) + "\n")
                stream.flush()
        code = 0
    except BaseException:
        traceback.print_exc()  # of the harness or of what makes cases, not of what is tried
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


def _tried(case: Case, chance: Random, limits: Limits) -> str:
    """What became of one case."""
    read = case(chance)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if limits.memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + limits.memory, hard))
    signal.setitimer(signal.ITIMER_PROF, limits.seconds)
    try:
        read()
    except HelmError as error:
        return _checked(error)
    except _HangError:
        return f"took more than {limits.seconds:g} s"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}{_place(error)}"
    except BaseException as error:  # a panic of a library in Rust is none of the exceptions that people catch
        return f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return "accepted"


def _checked(error: HelmError) -> str:
    """An error of ours is one line, of a length that can be read, and its code is not that of a failure of ours."""
    line = str(error)
    if type(error) is HelmError or error.exit_code == 1:
        return f"an internal error: {line[:300]}"
    if "\n" in line or len(line) > 3000:
        return f"an error of {len(line)} letters: {line[:100]}"
    return "refused"


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"


def _hang(number: int, frame: FrameType | None) -> NoReturn:
    raise _HangError


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def of_bytes(seeds: Callable[[Path], Sequence[bytes]], change: Callable[[bytes, Random], bytes],
             read: Callable[[bytes], object]) -> Callable[[Path], Case]:  # fmt: skip
    """A target's `prepare` whose cases are changed seeds, given to `read` as bytes."""

    def prepare(folder: Path) -> Case:
        found = seeds(folder)

        def case(chance: Random) -> Callable[[], object]:
            data = change(chance.choice(found), chance)
            return lambda: read(data)

        return case

    return prepare


def of_files(seeds: Callable[[Path], Sequence[bytes]], change: Callable[[bytes, Random], bytes],
             read: Callable[[Path], object], name: str = "case") -> Callable[[Path], Case]:  # fmt: skip
    """The same, given to `read` as a file that is called `name`."""

    def prepare(folder: Path) -> Case:
        found, inside = seeds(folder), folder / "cases"
        inside.mkdir()

        def case(chance: Random) -> Callable[[], object]:
            (inside / name).write_bytes(change(chance.choice(found), chance))
            return lambda: read(inside / name)

        return case

    return prepare


def main() -> int:
    """Try targets; print what failed and how fast it went, or (`--json`) a line of JSON for each target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="names in that module (default: all)")
    parser.add_argument("--module", default="targets", metavar="NAME", help="what has TARGETS (default: targets)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cases", type=int, default=2000, metavar="N", help="of each target")
    parser.add_argument("--first", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help="of processor time a case")
    parser.add_argument("--silence", type=float, default=SILENCE, metavar="N", help="seconds that a case may wait")
    parser.add_argument("--no-memory-limit", action="store_true", help="for sanitizers, whose shadow takes terabytes")
    parser.add_argument("--asked", action="store_true", help="take arguments from each line of the standard input")
    args = parser.parse_args()
    if not args.asked:
        return 4 if _try(args) else 0
    for line in sys.stdin:
        _try(parser.parse_args(shlex.split(line)))
    return 0


def _try(args: argparse.Namespace) -> int:
    """Try the targets of one line of arguments, and say what became of them; how many cases failed."""
    known: dict[str, Target] = import_module(args.module).TARGETS
    limits, failed = Limits(args.seconds, None if args.no_memory_limit else MEMORY, args.silence), 0
    for name in args.targets or known:
        began = time.monotonic()
        found = fuzz(known[name], args.cases, args.seed, args.first, limits)
        failed += len(found.failures)
        if args.json:
            say(json.dumps({"accepted": found.accepted, "refused": found.refused, "failures": _lines(found.failures)}))
            continue
        took = time.monotonic() - began  # of the printed line alone
        say(f"{name:24} {found.accepted:7} accepted {found.refused:7} refused {took:7.1f} s")
        for failure in found.failures[:20]:
            say(f"  {failure}")
    if not args.json:
        say(f"{failed} failures")
    return failed


def _lines(failures: Sequence[Failure]) -> list[str]:
    return [str(failure) for failure in failures]


if __name__ == "__main__":
    sys.exit(main())
