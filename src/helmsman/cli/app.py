"""Running a command: one-line errors or one JSON document, exit codes, signals."""

import argparse
import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any, NoReturn, TypeVar

from helmsman.cli.colours import paint_for
from helmsman.cli.output import OutputError, discard_output, say, to_json
from helmsman.cli.parser import Parser
from helmsman.cli.places import check_outputs
from helmsman.schemas.errors import (
    BadInputError,
    HardwareUnavailableError,
    HelmError,
    UsageError,
    refused_by_system,
)

# Scanning every installed distribution for pydantic plugins would cost each command 20 ms.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


ResultT = TypeVar("ResultT")


def run_command(
    parser: Parser | Callable[[list[str]], Parser],
    execute: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None = None,
    prog: str = "",
) -> int:
    """Parse, execute, and turn every failure into one line (or one JSON document) and its exit code.

    `parser`: or what makes it for the arguments of the command `prog`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    own_process = argv is None
    if own_process:
        gc.set_threshold(*COLLECTED)
    make = (lambda _: parser) if isinstance(parser, Parser) else parser
    parser = parser if isinstance(parser, Parser) else Parser(prog=prog)
    try:
        with _ending_by_signals():
            return _outcome(parser, make, execute, arguments)
    except OutputError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        discard_output()
        return 0
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    except _EndedError as ended:
        print(f"{parser.prog}: ended by {ended.signal.name}", file=sys.stderr)
        return 128 + ended.signal
    finally:
        if own_process:
            gc.freeze()  # nothing is looked for when the interpreter ends


COLLECTED = (50_000, 20, 100)
"""Thresholds of garbage collection in a process of a command: those of the interpreter, and looking through everything
at its end, are a sixth of the processor time of a plan."""

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command."""


def run_loop(work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Return what the coroutine of `work` returns, in an event loop of its own. Signals that end the command cancel it:
    an exception that their handler raised would be one of a callback there, and lost."""
    import asyncio

    before = {number: signal.getsignal(number) for number in ENDING}
    ended = list[int]()

    async def run() -> ResultT:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "within a task"

        def end(number: int) -> None:
            ended.append(number)
            task.cancel()

        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                loop.add_signal_handler(number, end, number)
        try:
            return await work()
        except asyncio.CancelledError:
            if ended:
                raise _EndedError(ended[0]) from None
            raise

    try:
        return asyncio.run(run())
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


class _EndedError(BaseException):
    """The process was told to end: what is half written is removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@contextmanager
def _ending_by_signals() -> Iterator[None]:
    """Meanwhile SIGTERM and SIGHUP end the command as Ctrl-C does, where nobody has said otherwise."""

    def end(number: int, _: object) -> NoReturn:
        raise _EndedError(number)

    main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in ENDING if main and signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _outcome(
    parser: Parser,
    make: Callable[[list[str]], Parser],
    execute: Callable[[argparse.Namespace], int],
    arguments: list[str],
) -> int:
    """Return what `run_command` returns; `parser` says what is wrong where `make` does not make another."""
    try:
        _check_zero_bytes(arguments)
        parser = make(arguments)
        args = parser.parse_args(arguments)
        if parser.writes_file:
            check_outputs(args)
        return execute(args)
    except SystemExit:
        say("", end="")  # --help and --version have printed, but not flushed
        raise
    except (OutputError, BrokenPipeError):
        raise
    except HelmError as error:
        return _report(parser, error, arguments)
    except RecursionError:
        return _report(parser, BadInputError("nested too deeply", remedy="name the right file"), arguments)
    except Exception as error:
        lack = _lack(error)
        if lack is not None:
            return _report(parser, lack, arguments)
        if "-v" in arguments or "--verbose" in arguments:
            raise
        return _report(parser, HelmError(f"internal error: {error!r}", remedy="run again with -v"), arguments)


def _check_zero_bytes(arguments: Sequence[str]) -> None:
    """Raise UsageError where an argument holds a zero byte, which no name of a file does: programs that call `main` may
    pass one."""
    wrong = next((argument for argument in arguments if "\0" in argument), None)
    if wrong is not None:
        raise UsageError("an argument holds a zero byte", value=wrong, remedy="leave it out")


def _lack(error: Exception) -> HardwareUnavailableError | None:
    """Return the memory, the thread or whatever else the system refused, if that is what `error` says: from Python,
    from libraries, or from the loader of their native parts."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return _out_of_memory()
    if isinstance(error, ImportError) and any(refusal in str(error) for refusal in _NO_MAPPING):
        return _out_of_memory()
    native = isinstance(error, OSError) and error.errno == errno.EAGAIN
    if native or (isinstance(error, RuntimeError) and str(error) == _NO_THREAD):
        remedy = "allow this process more memory (ulimit -v) or more threads (ulimit -u, pids.max)"
        return HardwareUnavailableError("no thread can be started", remedy=remedy)
    return refused_by_system(error) if isinstance(error, OSError) else None


def _out_of_memory() -> HardwareUnavailableError:
    remedy = "free some memory or allow more, or ask for less: a smaller batch, a shorter context"
    return HardwareUnavailableError("out of memory", remedy=remedy)


_NO_THREAD = "can't start new thread"
"""As Python says it."""
_NO_MAPPING = ("failed to map segment", "cannot allocate memory", os.strerror(errno.ENOMEM))
"""As the dynamic loader says it of a library that has no room."""


def _report(parser: Parser, error: HelmError, arguments: list[str]) -> int:
    """Say what is wrong in one line on stderr; with --json also in a document on stdout. Return the exit code."""
    error.message = parser.in_flags(error.message)
    error.remedy = None if error.remedy is None else parser.in_flags(error.remedy)
    if error.field is not None and error.file is None:
        error.field = parser.flag(error.field) or error.field
    if "--json" in arguments and not error.reported:
        fields = {"code": error.code, "message": error.message, "file": error.file, "field": error.field}
        say(to_json({"error": {**fields, "value": _printable(error.value), "remedy": error.remedy}}))
    paint = paint_for(sys.stderr)
    for doubt in error.doubts:
        print(f"{parser.prog}: {paint('warning', 'warning:')} {parser.in_flags(doubt)}", file=sys.stderr)
    print(f"{parser.prog}: {paint('error', 'error:')} {error}", file=sys.stderr)
    return error.exit_code


def _printable(value: Any) -> str | int | float | None:
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
        return value
    return repr(value)
