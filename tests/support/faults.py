"""Faults of the system under a command: the n-th write, sync, rename, read, allocation, thread or reading of a clock
fails, comes up short, or is where the process is killed.

The seam is the system's: `faults.c`, loaded before libc, sees the calls of Python, of Helm's C++ and of every library.
Commands run in processes that are forked from one that has imported what they need and has one thread, so that a
command costs milliseconds and can be repeated once for each of its calls. Files count beneath one folder, allocations
from a size on."""

import ctypes
import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Self

KINDS = ("open", "create", "read", "write", "sync", "reserve", "rename", "mkdir", "chmod", "remove", "allocate",
         "thread", "clock")  # fmt: skip
WRITING = ("create", "write", "sync", "reserve", "rename", "mkdir", "chmod")
"""What changes files, and may fail while they are written."""
READING = ("open", "read")
ACTIONS = ("fail", "short", "signal", "stand", "set")
FOR_GOOD = 2**40
LEAST = 2**15
"""Bytes of an allocation that counts, unless said otherwise: smaller ones come from what a process has."""
SILENCE_S = 120.0
"""Seconds after which a command is taken to wait for ever."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Calls `first` to `last`, counted from 0 over all of `kinds`, meet it.

    `action`: fail with `value` as errno; short: half of what was asked; signal: number `value` is sent to the process
    before the call; stand: CLOCK_MONOTONIC stands still for `seconds`; set: nothing but that CLOCK_REALTIME jumps by
    `jump` seconds from then on, as it does with any action."""

    kinds: tuple[str, ...]
    first: int = 0
    last: int = -1
    action: str = "fail"
    value: int = errno.EIO
    seconds: float = 0.0
    jump: float = 0.0

    @classmethod
    def none(cls) -> Self:
        """No fault: calls are counted."""
        return cls((), FOR_GOOD)


def failing(kinds: Sequence[str], number: int, code: int = errno.EIO, *, for_good: bool = False) -> Fault:
    """Call `number` fails with `code`, and those after it too where it is `for_good`."""
    return Fault(tuple(kinds), number, FOR_GOOD if for_good else number, "fail", code)


def killed(kinds: Sequence[str], number: int, by: signal.Signals = signal.SIGKILL) -> Fault:
    """The process gets a signal right before call `number`."""
    return Fault(tuple(kinds), number, number, "signal", by)


def short(kinds: Sequence[str], number: int) -> Fault:
    """Call `number` moves half the bytes."""
    return Fault(tuple(kinds), number, number, "short")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its exit code, or the signal that killed it as a negative number; what it said; calls by
    kind; `met`: how many of them met the fault."""

    code: int
    out: str
    err: str
    counts: Mapping[str, int]
    met: int

    def count(self, kinds: Sequence[str]) -> int:
        """Calls of several kinds."""
        return sum(self.counts[kind] for kind in kinds)


class _Plan(ctypes.Structure):
    """`struct plan` of faults.c."""

    _fields_ = [
        ("armed", ctypes.c_int),
        ("kinds", ctypes.c_uint),
        ("first", ctypes.c_long),
        ("last", ctypes.c_long),
        ("action", ctypes.c_int),
        ("value", ctypes.c_int),
        ("seconds", ctypes.c_double),
        ("jump", ctypes.c_double),
        ("least", ctypes.c_size_t),
        ("root", ctypes.c_char * 4096),
        ("counts", ctypes.c_long * len(KINDS)),
        ("together", ctypes.c_long),
        ("met", ctypes.c_int),
    ]


def compiled(folder: Path) -> Path:
    """Build the library of faults.c in `folder`, with the C compiler that comes with the project's C++ compiler."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), "cc")
    target = folder / "faults.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", target, source, "-ldl", "-lpthread"], check=True)
    return target


class Forking:
    """A process that forks commands, which need not import again what others of them have: for all tests there are.

    A context; `folder`: where the library of faults is built."""

    def __init__(self, folder: Path) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        said = {**os.environ, **_ALONE, "LD_PRELOAD": str(compiled(folder)), "PYTHONPATH": paths}
        command = [sys.executable, "-P", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=said, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, **asked: Any) -> Any:
        """Its answer to a line."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "what forks the commands has ended"
        return json.loads(line)


class Faulty:
    """Runs commands beneath a fault, one at a time, with variables of the environment set.

    `root`: the folder whose files count; `least`: bytes of an allocation that does."""

    def __init__(self, forking: Forking, root: Path, least: int = LEAST, **environment: str) -> None:
        self._ask, self._root, self._least, self._environment = forking.ask, str(root), least, environment

    def run(self, command: str, *argv: object, fault: Fault | None = None) -> Ended:
        """`helm-COMMAND ARGV`, or `MODULE:FUNCTION` of an importable module, from its start to its end."""
        self.start(command, *argv, fault=fault)
        return self.wait()

    def start(self, command: str, *argv: object, fault: Fault | None = None) -> int:
        """Begin a command; its process."""
        about = {"root": self._root, "least": self._least, "fault": asdict(fault or Fault.none()),
                 "environment": self._environment}  # fmt: skip
        return int(self._ask(do="start", command=command, argv=[str(word) for word in argv], **about)["pid"])

    def plant(self, fault: Fault | None) -> None:
        """From now on the command that runs meets another fault, counted anew."""
        self._ask(do="plant", root=self._root, least=self._least, fault=asdict(fault or Fault.none()))

    def seen(self) -> tuple[dict[str, int], int]:
        """Calls by kind, and how many met the fault, so far."""
        found = self._ask(do="seen")
        return found["counts"], found["met"]

    def wait(self) -> Ended:
        """The end of the command that runs."""
        return Ended(**self._ask(do="wait"))


_ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
          "JE_ARROW_MALLOC_CONF": "background_thread:false"}  # fmt: skip
"""So that no import starts a thread, and Arrow's memory comes from where all comes from."""


class _Server:
    """Forks commands as it is asked, line by line."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        library.faults.restype = ctypes.POINTER(_Plan)
        self._library, self._plan = library, library.faults().contents
        self._imported = set[str]()
        self._child, self._files = 0, list[int]()

    def answer(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        match asked["do"]:
            case "start":
                return {"pid": self._start(asked)}
            case "plant":
                self._arm(asked)
                return {}
            case "seen":
                return {"counts": self._counts(), "met": self._plan.met}
            case _:
                return self._wait()

    def _arm(self, asked: Mapping[str, Any]) -> None:
        fault, plan = asked["fault"], self._plan
        plan.armed = 0
        plan.kinds = sum(1 << KINDS.index(kind) for kind in fault["kinds"])
        plan.first, plan.last, plan.action = fault["first"], fault["last"], ACTIONS.index(fault["action"])
        plan.value, plan.seconds, plan.jump = fault["value"], fault["seconds"], fault["jump"]
        plan.least, plan.root = asked["least"], asked["root"].encode()
        for number in range(len(KINDS)):
            plan.counts[number] = 0
        plan.together = plan.met = 0
        plan.armed = 1

    def _counts(self) -> dict[str, int]:
        return dict(zip(KINDS, self._plan.counts, strict=True))

    def _start(self, asked: Mapping[str, Any]) -> int:
        command = asked["command"]
        module, _, function = command.partition(":")
        name, function = (module, function) if function else (f"helmsman.cli.{module.replace('-', '_')}", "main")
        main = getattr(import_module(name), function)
        self._files = [os.memfd_create(each) for each in ("out", "err", "modules")]
        self._check_alone()
        child = os.fork()
        if child == 0:
            self._perform(main, asked)
        self._child = child
        return child

    def _perform(self, main: Any, asked: Mapping[str, Any]) -> NoReturn:
        """A command's process, from its first call to its last."""
        out, err, modules = self._files
        nothing, code = os.open(os.devnull, os.O_RDONLY), 1
        for target, file in enumerate((nothing, out, err)):
            os.dup2(file, target)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what is started in the background
        os.environ.update(asked["environment"])
        self._library.meet_faults()
        self._arm(asked)
        try:
            code = main(asked["argv"]) or 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            self._plan.armed = 0
            traceback.print_exc()
        finally:
            self._plan.armed = 0
            with suppress(OSError):
                sys.stdout.flush()
            sys.stderr.flush()
            os.write(modules, json.dumps(list(sys.modules)).encode())
            os._exit(code)

    def _wait(self) -> Mapping[str, Any]:
        with os.fdopen(os.pidfd_open(self._child)) as process:
            if not select.select([process], [], [], SILENCE_S)[0]:
                os.kill(self._child, signal.SIGKILL)
        _, status = os.waitpid(self._child, 0)
        self._plan.armed = 0
        out, err, modules = (_content(file) for file in self._files)
        if modules:
            self._import(json.loads(modules))
        code = os.waitstatus_to_exitcode(status)
        return {"code": code, "out": out, "err": err, "counts": self._counts(), "met": self._plan.met}

    def _import(self, names: Sequence[str]) -> None:
        """What a command had imported when it ended: the next one need not. Nor need it make the table of strings that
        pydantic's parser keeps, which ends the process where there is no memory for it."""
        for name in names:
            if name not in self._imported and name not in sys.modules:
                with suppress(Exception):
                    import_module(name)
        if "pydantic_core" in names and "pydantic_core" not in self._imported:
            sys.modules["pydantic_core"].from_json(b'["text"]')
        self._imported.update(names)

    def _check_alone(self) -> None:
        assert len(list(Path("/proc/self/task").iterdir())) == threading.active_count() == 1, (
            "a fork needs a single thread"
        )


def _content(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(file, "rb") as stream:
        return stream.read().decode(errors="replace")


def _serve() -> None:
    server, asked = _Server(), os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in asked:
        answers.write(json.dumps(server.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
