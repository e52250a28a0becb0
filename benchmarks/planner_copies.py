"""helm-web as a copy of this process, which is there within some hundredths of a second: the service and the planner
are loaded already, and the command's code runs from its first line on.

What a server starts itself by `python -c`, the process that its workers are copies of, is a copy too. Copies are made
while this process has one thread, and start with nothing open but what a new process would have."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from io import FileIO
from multiprocessing import util
from pathlib import Path
from typing import IO, Any

from benchmarks.planner_clients import ServerProcess, WebServer

_STANDARD = (0, 1, 2)


class CopiedServer(WebServer):
    """helm-web as a copy of this process, once `load` was called."""

    def _started(self, arguments: Sequence[str], stderr: IO[bytes]) -> ServerProcess:
        return CopiedProcess(partial(_web, arguments), stderr.fileno())


class CopiedProcess:
    """A copy of this process that does some work, with a status as its result, and writes to `stdout` and a file."""

    def __init__(self, work: Callable[[], int], stderr: int) -> None:
        """Raises OSError where the system refuses."""
        reader, writer = os.pipe()

        def work_aside() -> int:
            os.dup2(writer, 1)
            os.dup2(stderr, 2)
            _close_others(_STANDARD)
            return work()

        sys.stdout.flush()
        self.pid = _copy(work_aside)
        os.close(writer)
        self.stdout = os.fdopen(reader)

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Return the status once it has ended. Raises TimeoutExpired where it has not within so many seconds."""
        with closing(FileIO(os.pidfd_open(self.pid))) as end:
            if not select.select([end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("helm-web", timeout or 0.0)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def load() -> None:
    """Load what helm-web and its workers do, and make what is the same at each start, two seconds' work: lists of
    names, and the description of the service."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the command does: copies have no threads of this process
    for name in ("cli.web", "service.planner.server", "service.planner.computing"):
        import_module(f"helmsman.{name}")
    from helmsman.analysis import listing
    from helmsman.service.planner.application import application
    from helmsman.service.planner.routes.description import Description

    named = {kind: listing.listing(kind) for kind in listing.KINDS}
    nobody: Any = None
    made = asyncio.run(application(nobody).description.content())
    for place, name, answer in ((listing, "listing", named.__getitem__), (Description, "_made", lambda _: made)):
        setattr(place, name, answer)


def _web(arguments: Sequence[str]) -> int:
    """Be helm-web, whose own processes are copies too."""
    from helmsman.cli.web import main

    spawning: Any = util
    spawning.spawnv_passfds = _spawned
    return main(arguments)


def _spawned(path: bytes, words: Sequence[str], kept: Collection[int]) -> int:
    """Run the code of a command `python ... -c CODE` in a copy of this process that has the files `kept`; returns its
    id, as `multiprocessing.util.spawnv_passfds`."""

    def run() -> int:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _close_others((*_STANDARD, *kept))
        exec(words[-1], {"__name__": "__main__"})
        return 0

    return _copy(run)


def _copy(work: Callable[[], int]) -> int:
    """Do some work in a copy of this process, which ends with it; returns the copy's id."""
    pid = os.fork()
    if pid:
        return pid
    status: int | str | None = 1
    try:
        status = work()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status if isinstance(status, int) else int(status is not None))


def _close_others(kept: Collection[int]) -> None:
    """Close all files but these."""
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with suppress(OSError):  # that of the list itself
                os.close(descriptor)
