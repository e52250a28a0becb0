"""The life of a worker process: a task after the other, within its limits, until the server ends or wants no more."""

import gc
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.reduction import DupFd
from pathlib import Path
from socket import socket
from threading import Thread
from typing import TYPE_CHECKING, Any

from helmsman.schemas.errors import HelmError
from helmsman.schemas.problem import Problem
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.frames import WorkerFrame, answer_frame, receive, send
from helmsman.service.planner.problems import internal_problem, problem_of

if TYPE_CHECKING:
    from helmsman.service.planner.computing.tasks import TaskSetting

_COLLECTED = 50_000
"""Values that are made before cycles are looked for: hardly anything that a search makes is in one."""
_OOM_SCORE, _MOST_OOM_SCORE = 300, 1000
"""Added to the score by which Linux chooses what ends when memory runs out, in thousandths of all memory, as Chromium
does for its pages: the job that takes the memory ends, not the server, which could not say then which job it was."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """`memory`: bytes of address space that a task may take; `points`: the most questions of a study; `nice`: how far a
    worker gives way to others; `work`, `results`: folders for what jobs leave between attempts, and for results;
    `requeue`: is called with the key of its last task by a worker whose server has ended."""

    memory: int
    points: int
    work: Path
    results: Path
    requeue: Callable[[str], None]
    nice: int = 0


class TooMuchMemoryError(HelmError):
    """Raised where a task would take more memory than it may have."""

    code = "too-much-memory"


class SharedDescriptor:
    """A file descriptor that goes to another process with what is sent there: both then hold what is open, and its
    lock."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[Any], "SharedDescriptor"], tuple[Any]]:
        return _received, (DupFd(self.descriptor),)


def _received(duplicate: Any) -> SharedDescriptor:
    return SharedDescriptor(duplicate.detach())


def work(channel: socket, lock: SharedDescriptor | None, limits: WorkerLimits) -> None:
    """Answer tasks that come on `channel`. `lock` is held for as long as the process lives: the store's, so that no
    other server begins what this one is still at, before it has said that it outlived its own."""
    from helmsman.service.planner.computing.tasks import (  # the planner, which the server does without
        CATALOGUE,
        TaskSetting,
    )

    life = WorkerLife(limits.requeue)
    _prepare(limits, life)
    setting = TaskSetting(CATALOGUE, limits.work, limits.results, limits.points)
    while True:
        try:
            frame = receive(channel)
            life.key = frame.name.partition(" ")[2]
            send(channel, WorkerFrame("begun", b""))
            send(channel, answer_frame(_outcome(channel, frame, setting)))
        except (EOFError, OSError):
            life.outlive()
            return


@dataclass
class WorkerLife:
    """Queues the jobs of a worker's last task again if its server ends first, as the task is not the reason then.

    `requeue`: does so in the store, given the task's `key`; None before the first task."""

    requeue: Callable[[str], None]
    key: str | None = None

    def outlive(self) -> None:
        """Let the jobs of the last task wait for another server; those that have ended stay as they are."""
        if self.key is not None:
            self.requeue(self.key)

    def end_with_server(self) -> None:
        """Wait until the server has ended, and end this process too."""
        server = parent_process()
        assert server is not None, "was started by one"
        server.join()
        try:
            self.outlive()
        finally:
            os._exit(1)


def _prepare(limits: WorkerLimits, life: WorkerLife) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):  # of a whole terminal: the server ends this process
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    os.nice(limits.nice)
    with suppress(OSError):  # other systems have no such file
        place = Path("/proc/self/oom_score_adj")
        place.write_text(str(min(_MOST_OOM_SCORE, int(place.read_text()) + _OOM_SCORE)))
    gc.set_threshold(_COLLECTED, *gc.get_threshold()[1:])
    Thread(target=life.end_with_server, daemon=True).start()


def _outcome(channel: socket, frame: WorkerFrame, setting: "TaskSetting") -> WorkerAnswer:
    """Return the answer of a task, or the problem that it met."""
    from helmsman.service.planner.computing.tasks import TASKS, WorkerTask

    def tell(done: int, total: int) -> None:
        send(channel, WorkerFrame("progress", f"{done} {total}".encode()))

    kind, _, key = frame.name.partition(" ")
    try:
        return TASKS[kind](WorkerTask(key, frame.content, setting, tell))
    except HelmError as error:
        return _refusal(problem_of(error))
    except MemoryError:
        remedy = "ask for less at a time: fewer requests, points or tokens"
        lack = TooMuchMemoryError("takes more memory than a job may have", remedy=remedy)
        return _refusal(problem_of(lack), spent=True)
    except Exception as error:
        return _refusal(internal_problem(error), spent=True)


def _refusal(problem: Problem, spent: bool = False) -> WorkerAnswer:
    return WorkerAnswer(problem.to_json(indent=None).encode(), problem.status, spent=spent)
