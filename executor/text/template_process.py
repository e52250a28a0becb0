"""`Renderer` renders a chat template in a process of its own, and ends that process when the template takes too much.

A checkpoint's template is a program of somebody else's: it may loop for ever, or ask for all memory. The process has
limits of both (`RenderLimits`), starts with the first conversation, and again after it was ended. Conversations are
rendered one after the other on a thread of their own, so that nothing else waits for them."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from helmsman.executor.system.helper_process import HelperProcess
from helmsman.executor.text.chat_template import ChatTemplate, Message
from helmsman.schemas.errors import BadInputError

_CHILD = (sys.executable, "-P", "-m", "helmsman.executor.text.template_child")
_ESCAPED = 12
"""Bytes of JSON that a character takes at most: two escapes of six."""


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Limits of rendering one conversation.

    `seconds`: of processor time, which the system counts in whole seconds, rounded up; `memory`: bytes beside those
    of the interpreter; `characters`: of the prompt; `patience_s`: seconds of the clock until the answer is given up."""

    seconds: float = 2.0
    memory: int = 2**28
    characters: int = 2**22
    patience_s: float = 30.0


class Renderer(HelperProcess[subprocess.Popen[bytes]]):
    """A chat template that is rendered apart. Used as a context, or closed: that ends its process."""

    def __init__(self, template: ChatTemplate, limits: RenderLimits | None = None) -> None:
        super().__init__("chat-template")
        self.template, self._limits = template, limits or RenderLimits()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def own(self) -> bool:
        """Whether the template is the checkpoint's own."""
        return self.template.own

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt after which the assistant speaks. Raises BadInputError where the template fails or takes more than
        it may."""
        return self.submit(messages).result()

    def submit(self, messages: Sequence[Message]) -> Future[str]:
        """`render`, later: in turn with what else was asked."""
        return self._thread.submit(self._render, list(messages))

    def _render(self, messages: list[Message]) -> str:
        try:
            process = self._process or self._start()
            line = self._answer(process, json.dumps(messages).encode() + b"\n")
        except OSError as error:
            raise self._ended(f"the process that renders it failed: {error}") from None
        answer = json.loads(line)
        if "error" in answer:
            raise self._failed(answer["error"])
        return str(answer["text"])

    def _start(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        process = self._started(lambda: subprocess.Popen(_CHILD, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL))
        if process is None:
            raise self._failed("the process that renders it was ended")
        limits = self._limits
        first = {"source": self.template.source, "tokens": dict(self.template.tokens), "seconds": limits.seconds}
        first |= {"memory": limits.memory, "characters": limits.characters}
        self._write(process, json.dumps(first).encode() + b"\n")
        return process

    def _answer(self, process: subprocess.Popen[bytes], line: bytes) -> bytes:
        """The line that answers `line`."""
        assert process.stdout is not None, "opened with a pipe"
        self._write(process, line)
        answer, until = bytearray(), time.monotonic() + self._limits.patience_s
        most = _ESCAPED * self._limits.characters + 2**16
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise self._ended(f"no answer within {self._limits.patience_s:g} s")
            piece = os.read(process.stdout.fileno(), 2**20)
            answer += piece
            if not piece:
                raise self._ended(self._cause_of_end(process))
            if len(answer) > most:
                raise self._ended(f"it makes more than {self._limits.characters} characters")
        return bytes(answer)

    def _write(self, process: subprocess.Popen[bytes], line: bytes) -> None:
        assert process.stdin is not None, "opened with a pipe"
        process.stdin.write(line)
        process.stdin.flush()

    def _cause_of_end(self, process: subprocess.Popen[bytes]) -> str:
        """Say why a process ended that has closed its output, from the signal that ended it."""
        process.kill()  # where it only closed its output: an end that came before keeps its signal
        if process.wait() == -signal.SIGXCPU:
            return f"it takes more than {self._limits.seconds:g} s"
        return "the process that renders it ended"

    def _ended(self, why: str) -> BadInputError:
        self._end()
        return self._failed(why)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None, "opened with pipes"
            with suppress(OSError):  # what was not written yet, to a process that is gone
                pipe.close()

    def _failed(self, why: str) -> BadInputError:
        remedy = "use another checkpoint, or give a whole prompt as text"
        message = f"the chat template fails: {why}"
        return BadInputError(message, file=self.template.file, field="chat_template", remedy=remedy)
