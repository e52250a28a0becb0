"""`HelperProcess` runs a process that works for this one: started with the first call, ended at any moment.

Calls are made one after the other on a thread of their own, so that nothing else waits for them, and each gets its own
answer also where whoever asked has left."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Generic, Protocol, TypeVar


class _Killable(Protocol):
    def kill(self) -> None:
        """End the process now."""


ProcessT = TypeVar("ProcessT", bound=_Killable)


class HelperProcess(ABC, Generic[ProcessT]):
    """The process, None before the first call and after an end; `_thread`: makes the calls; `_closed`: no process is
    started any more."""

    def __init__(self, name: str) -> None:
        """Prepare; `name` is the thread's."""
        self._process: ProcessT | None = None
        self._closed, self._starts = False, Lock()
        self._thread = ThreadPoolExecutor(1, name)

    def close(self) -> None:
        """End the process, whatever it does; calls that wait are given up."""
        with self._starts:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._end()

    def _started(self, start: Callable[[], ProcessT]) -> ProcessT | None:
        """The new process that `start` returns; None where this is closed. No close comes between the two."""
        with self._starts:
            if self._closed:
                return None
            self._process = start()
            return self._process

    @abstractmethod
    def _end(self) -> object:
        """End the process, if there is one, and forget it and its pipes."""
