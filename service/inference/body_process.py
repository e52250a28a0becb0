"""`BodyProcess` reads large bodies and turns long texts into tokens, in a process of its own.

Both hold Python's lock as long as they take (a body of 1 MiB 0.4 s, a text of 1 MiB more than a second), and engine and
event loop need that lock for every token. The process starts with the first call, takes one call at a time, gives way
to all others (a lower priority), and is ended by the system when a call takes more of its time than it may."""

import asyncio
import os
import pickle
import resource
import signal
from array import array
from collections.abc import Callable
from math import ceil
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from helmsman.executor.system.helper_process import HelperProcess
from helmsman.executor.text.tokenizer import Text
from helmsman.schemas.base import Document
from helmsman.schemas.errors import HelmError
from helmsman.schemas.read import parse_document
from helmsman.service.http.refusals import RefusedError

DocumentT = TypeVar("DocumentT", bound=Document)

_SECONDS = 10.0
"""Processor time that a call may take, and again so much for each MiB of what it is given: ten times what real ones
take."""
_PATIENCE = 6.0
"""Seconds of the clock for each of processor time that a call may take: others come first."""
_WAITING = 32
"""Calls that may wait."""
_NICE = 10
_SHOWN = 80
"""Characters of a wrong value that come back."""


class BodyProcess(HelperProcess[BaseProcess]):
    """That process. Used in one event loop; `text`: the tokenizer of what is served, if it has one."""

    def __init__(self, text: Text | None) -> None:
        super().__init__("apart")
        self._text = pickle.dumps(text)  # once: of large vocabularies it takes a tenth of a second
        self._waiting = 0
        self._connection: Connection | None = None

    async def parse(self, cls: type[DocumentT], body: bytes) -> DocumentT:
        """Return the request `body` as a `cls`. Raises what `parse_document` raises, RefusedError where it takes too
        long."""
        result: DocumentT = await self._called(_parsed, len(body), cls, body)
        return result

    async def encode(self, text: str, special: bool) -> "array[int]":
        """Token ids of `text`. Raises what `Text.encode` raises, RefusedError where it takes too long."""
        result: array[int] = await self._called(_encoded, len(text), text, special)
        return result

    async def _called(self, function: Callable[..., Any], size: int, *arguments: Any) -> Any:
        """Call `function`, which is given `size` bytes or characters, in its turn. Raises what it raises there, and
        RefusedError where too many wait or it takes too long."""
        if self._closed:
            raise _stopping()
        if self._waiting > _WAITING:
            raise RefusedError(429, "bodies", "too many large requests at once; come again", retry_s=1)
        seconds, loop = _SECONDS * (1.0 + size / 2**20), asyncio.get_running_loop()
        self._waiting += 1
        try:
            answer = await loop.run_in_executor(self._thread, self._answer, function, seconds, arguments)
        finally:
            self._waiting -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(self, function: Callable[..., Any], seconds: float, arguments: tuple[Any, ...]) -> Any:
        """Call `function` in the process; return its result, or the exception that ended it, as an object."""
        try:
            connection = self._connection or self._start()
            connection.send((function, seconds, arguments))
            if connection.poll(_PATIENCE * seconds):
                return connection.recv()
            self._end()
            return _too_long(_PATIENCE * seconds)
        except (EOFError, OSError, MemoryError):  # without memory a part of an answer may still be in the pipe
            status = self._end()
            if self._closed:
                return _stopping()
            if status == -signal.SIGXCPU:
                return _too_long(seconds)
            return RefusedError(503, "reading", "what reads large requests ended; come again", retry_s=1)

    def _start(self) -> Connection:
        context = get_context("spawn")
        ours, theirs = context.Pipe()

        def started() -> BaseProcess:
            process = context.Process(target=_work, args=(theirs, self._text), name="apart", daemon=True)
            process.start()
            return process

        try:
            if self._started(started) is None:
                raise EOFError
        finally:
            theirs.close()
        self._connection = ours
        return ours

    def _end(self) -> int | None:
        """End the process, and tell how it ended; None where there is none."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is None:
            return None
        process.kill()  # one that ended before keeps its status
        process.join()
        return process.exitcode


def _too_long(seconds: float) -> RefusedError:
    return RefusedError(400, "too_dear", f"reading this request takes more than {seconds:.0f} s")


def _stopping() -> RefusedError:
    return RefusedError(503, "stopping", "the server is stopping", retry_s=5)


def _work(connection: Connection, pickled: bytes) -> None:
    """The process's life: one call after the other, until nobody asks."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # of all processes: it is the parent's to end this
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICE)
    text: Text | None = pickle.loads(pickled)
    while True:
        try:
            function, seconds, arguments = connection.recv()
        except EOFError:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft, hard = ceil(used.ru_utime + used.ru_stime + seconds), resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
        try:
            answer = function(text, *arguments)
        except HelmError as error:
            error.value = None if error.value is None else str(error.value)[:_SHOWN]
            answer = error
        except (MemoryError, RecursionError) as error:
            answer = type(error)()
        connection.send(answer)


def _parsed(text: Text | None, cls: type[DocumentT], body: bytes) -> DocumentT:
    return parse_document(cls, body, "request")


def _encoded(text: Text | None, content: str, special: bool) -> "array[int]":
    assert text is not None, "asked only where there is one"
    return array("I", text.encode(content, special=special))
