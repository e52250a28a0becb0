"""A worker process as the server holds it: started, given one task at a time, ended at any moment."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from socket import socketpair

from helmsman.schemas.errors import HelmError
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.frames import WorkerFrame, answer_in, read
from helmsman.service.planner.computing.worker_main import SharedDescriptor, WorkerLimits, work

_PRELOADED = ["helmsman.service.planner.computing.worker_main", "helmsman.service.planner.computing.warm"]

_ENDING_S = 10.0
"""Seconds until a killed process has ended, unless the system holds it."""


class WorkerEndedError(HelmError):
    """A worker ended before it answered: it was killed, by the server or for want of memory."""

    code = "worker-ended"


class UnbegunTaskError(WorkerEndedError):
    """A worker ended before it began with a task, which says nothing of the task."""


def _context() -> ForkServerContext | SpawnContext:
    """Return the way to start processes: one that has the planner loaded makes copies of itself in some milliseconds;
    where that cannot be, each loads it again."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def start_early() -> None:
    """Let the process that workers are copies of load the planner, while this one does other things."""
    if "forkserver" in get_all_start_methods():
        _context()
        ensure_running()


Progress = Callable[[int, int], None]


@dataclass(eq=False)
class WorkerProcess:
    """A process and the channel to it. Used in one event loop; `thread` starts processes and waits for their end;
    `begun`: it has taken the task that it was given last."""

    process: BaseProcess
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    thread: Executor
    begun: bool = False

    @classmethod
    async def started(cls, limits: WorkerLimits, lock: int | None, thread: Executor) -> "WorkerProcess":
        """Start one. `lock`: a file descriptor that it is to hold as long as it lives. Raises OSError where the system
        refuses."""
        ours, theirs = socketpair()
        shared = None if lock is None else SharedDescriptor(lock)
        process = _context().Process(target=work, args=(theirs, shared, limits), name="helm-web worker", daemon=True)
        try:
            await asyncio.get_running_loop().run_in_executor(thread, process.start)
            ours.setblocking(False)
            return cls(process, *await asyncio.open_connection(sock=ours), thread)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    async def answer(self, kind: str, key: str, question: bytes, progress: Progress) -> WorkerAnswer:
        """Return the answer to a question of a kind. Raises WorkerEndedError where the process ends before."""
        self.begun = False
        try:
            self.writer.writelines(WorkerFrame(f"{kind} {key}", question).pack())
            await self.writer.drain()
            await read(self.reader)
            self.begun = True
            while (frame := await read(self.reader)).name == "progress":
                done, _, total = frame.content.partition(b" ")
                progress(int(done), int(total))
        except (EOFError, OSError):
            remedy = "ask for less at a time; it may have needed more memory than there is"
            ended = WorkerEndedError if self.begun else UnbegunTaskError
            raise ended("the process that computed the answer ended", remedy=remedy) from None
        return answer_in(frame)

    @property
    def ended(self) -> bool:
        """Return whether the process has ended by itself, or was killed from outside."""
        return bool(wait([self.process.sentinel], 0))

    def give_way(self, nice: int) -> None:
        """Let others come first from now on."""
        with suppress(OSError):  # it may have ended
            os.setpriority(os.PRIO_PROCESS, self.process.pid or 0, nice)

    async def end(self) -> None:
        """End the process, whatever it does, and wait until it has."""
        self.process.kill()
        self.writer.close()
        await asyncio.get_running_loop().run_in_executor(self.thread, self.process.join, _ENDING_S)
        if self.process.exitcode is not None:
            self.process.close()
