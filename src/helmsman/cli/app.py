"""What every command shares: parsing, one-line errors, exit codes, one JSON document, files that are complete."""

import argparse
import errno
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from helmsman import __version__
from helmsman.cli.places import check_outputs
from helmsman.schemas.errors import (
    BadInputError,
    HardwareUnavailableError,
    HelmError,
    UsageError,
    refused_by_system,
    unwritable,
)
from helmsman.schemas.near_names import close_names
from helmsman.schemas.write import whole_file

# Scanning every installed distribution for pydantic plugins would cost each command 20 ms.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


ResultT = TypeVar("ResultT")

PLACE = "PLACE"
"""As --out is called where it may name a folder."""


class OutputError(HardwareUnavailableError):
    """What was to be printed cannot be: standard output is full or broken."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are UsageErrors, so that --json covers them too. `writes_file`: --out names a
    file, not a folder; `foreign`: what is wrong with an option that it does not have, if that is known; `needed_first`:
    the options that --help shows, all if there are none, and `--help-all` the rest."""

    writes_file = True
    needed_first: frozenset[str] = frozenset()
    foreign: "Callable[[str], UsageError | None]" = staticmethod(lambda flag: None)

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting."""
        field, message = _option_named(message)
        remedy = f"see {self.prog} --help"
        if field and message == _UNRECOGNIZED:
            from difflib import get_close_matches

            if foreign := self.foreign(field):
                raise foreign
            near = get_close_matches(field, self._option_string_actions, 1, 0.7)
            remedy = f"did you mean {near[0]}? Else {remedy}" if near else remedy
        raise UsageError(message, field=field, remedy=remedy)

    def show_first(self, options: Collection[str], others: str) -> None:
        """Let --help show no more than these `options`, by their flags, and `others`: where the rest is told."""
        self.needed_first = frozenset(options)
        self.epilog = f"{self.epilog}\n\n{others}"
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every option and exit")

    def format_help(self) -> str:
        """What --help prints."""
        if not self.needed_first:
            return super().format_help()
        rest = [each for each in self._actions if each.option_strings and not self._is_first(each)]
        told, about = [each.help for each in rest], [group.description for group in self._action_groups]
        for each in rest:
            each.help = argparse.SUPPRESS
        for group in self._action_groups:
            group.description = None
        try:
            return super().format_help()
        finally:
            for each, text in zip(rest, told, strict=True):
                each.help = text
            for group, text in zip(self._action_groups, about, strict=True):
                group.description = text

    def _is_first(self, action: argparse.Action) -> bool:
        return not self.needed_first.isdisjoint(action.option_strings)

    def flag(self, option: str) -> str | None:
        """The flag of an option, as the library names it, or of one of its settings (`loopback cores`); None where the
        command has none."""
        option, _, setting = option.partition(" ")
        name = _SHORTER.get(option, option)
        named = (action.option_strings for action in self._actions if action.dest == name and action.option_strings)
        flag = next((flags[-1] for flags in named), None)
        return f"{flag} {setting}" if flag and setting else flag

    def in_flags(self, text: str) -> str:
        """Words of the library, which names options between backquotes, with the command's flags for them."""
        return re.sub("`([a-z][a-z0-9_]*)`", lambda found: self.flag(found[1]) or found[0], text)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A choice that there is not is said with those that are like it, or else all."""
        if action.choices is None or value in action.choices:
            return
        names = [str(each) for each in action.choices]
        near, flag = close_names(str(value), names), "/".join(action.option_strings) or action.dest
        remedy = f"did you mean {' or '.join(near[:3])}?" if near else f"use {', '.join(names)}"
        raise UsageError("no such choice", field=flag, value=value, remedy=remedy)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """A value as its argument's type reads it; what that refuses names the argument."""
        try:
            return super()._get_value(action, arg_string)
        except UsageError as error:
            error.field = error.field or "/".join(action.option_strings) or action.dest
            raise


_SHORTER = {
    "hardware": "hw",
    "vram_available": "vram_avail",
    "ram_available": "ram_avail",
    "policy_options": "policy_option",
}
"""Options that the command line calls by a shorter name than the library."""

_UNRECOGNIZED = "unrecognized argument"


def _option_named(message: str) -> tuple[str | None, str]:
    """(option, rest) of what argparse says."""
    if found := re.match(r"argument ([^:\s]+): (.*)", message, re.DOTALL):
        return found[1], found[2]
    if found := re.match(r"the following arguments are required: (.*)", message):
        return found[1], "required"
    if found := re.match(r"unrecognized arguments: (-[^\s=]+)", message):
        return found[1], _UNRECOGNIZED
    return None, message


class _HelpAll(argparse.Action):
    """Prints every option and exits."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, Parser)
        parser.needed_first = frozenset()
        say(parser.format_help(), end="")
        parser.exit(0)


_LISTED = {"model": "models", "hw": "machines", "gpu": "gpus", "cpu": "cpus", "policy": "policies"}
"""What helm-list calls the names that options take, by the option's name."""


class _Completion(argparse.Action):
    """Prints a completion script, which asks helm-list for names; shtab is imported only here."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        import shtab

        for action in parser._actions:
            if action.dest in _LISTED:
                names: Any = action
                names.complete = shtab.cmd(f"helm-list {_LISTED[action.dest]} -q | tr ' ' _")
        say(shtab.complete(parser, str(values)))
        parser.exit(0)


def command_parser(prog: str, description: str, example: str, out: str = "FILE") -> Parser:
    """A parser with the options that every command has; `out` other than FILE is what the command must write."""
    parser = Parser(
        prog=prog,
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    shells = ("bash", "zsh", "tcsh", "fish")
    parser.add_argument("--completion", action=_Completion, choices=shells, help="print a completion script")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    what = "also write the JSON document to FILE" if out == "FILE" else f"the {out.lower()} to write"
    parser.add_argument("-o", "--out", type=Path, metavar=out, required=out != "FILE", help=what)
    parser.writes_file = out != PLACE
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    volume.add_argument("-v", "--verbose", action="store_true", help="print more; tracebacks on failure")
    return parser


def run_command(
    parser: Parser | Callable[[list[str]], Parser],
    execute: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None = None,
    prog: str = "",
) -> int:
    """Parse, execute, and turn every failure into one line (or one JSON document) and its exit code.

    `parser`: or what makes it for the arguments of the command `prog`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    make = (lambda _: parser) if isinstance(parser, Parser) else parser
    parser = parser if isinstance(parser, Parser) else Parser(prog=prog)
    try:
        with _ending_by_signals():
            return _outcome(parser, make, execute, arguments)
    except OutputError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _discard_output()
        return 0
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    except _EndedError as ended:
        print(f"{parser.prog}: ended by {ended.signal.name}", file=sys.stderr)
        return 128 + ended.signal


ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command."""


def run_loop(work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """What the coroutine of `work` returns, in an event loop of its own. Signals that end the command cancel it: an
    exception that their handler raised would be one of a callback there, and lost."""
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
    numbers = [each for each in ENDING if main and signal.getsignal(each) is signal.SIG_DFL]
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
    """What `run_command` returns; `parser` says what is wrong where `make` does not make another."""
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
    """The memory, the thread or whatever else the system refused, if that is what `error` says: from Python, from
    libraries, or from the loader of their native parts."""
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


def say(text: str, end: str = "\n") -> None:
    """Print to standard output, now: the one place that does.

    What its encoding lacks is escaped as in JSON. Raises BrokenPipeError when the reader has left, else OutputError."""
    try:
        print(_encodable(text, getattr(sys.stdout, "encoding", None) or "utf-8"), end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_output()
        problem = unwritable(error, "standard output")
        raise OutputError(problem.message, file=problem.file, remedy=problem.remedy) from None


def _discard_output() -> None:
    """What is buffered goes nowhere, so that the interpreter's own flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(letter if _encodes(letter, encoding) else json.dumps(letter)[1:-1] for letter in text)
    return text


def _encodes(letter: str, encoding: str) -> bool:
    return letter.encode(encoding, "ignore") != b""


def emit(args: argparse.Namespace, document: str, text: Callable[[], str]) -> None:
    """Write `document` (JSON text) to --out, and print it or the text for people."""
    write_out(args, document)
    show(args, document, text)


def write_out(args: argparse.Namespace, document: str) -> None:
    """Write `document` (JSON text) to --out, if that is given."""
    if args.out is not None:
        write_text(args.out, document + "\n")


def show(args: argparse.Namespace, document: str, text: Callable[[], str]) -> None:
    """Print `document` (JSON text), or the text for people."""
    if args.json:
        say(document)
    elif not args.quiet:
        say(text())


def to_json(content: Any) -> str:
    """Deterministic JSON text; refuses NaN."""
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, complete or not at all. Raises what `whole_file` raises."""
    write_bytes(path, _encodable(text, "utf-8").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes, complete or not at all. Raises what `whole_file` raises."""
    with whole_file(path) as stream:
        stream.write(content)


def _report(parser: Parser, error: HelmError, arguments: list[str]) -> int:
    if "--json" not in arguments:
        for doubt in error.doubts:
            print(f"{parser.prog}: warning: {parser.in_flags(doubt)}", file=sys.stderr)
    error.message = parser.in_flags(error.message)
    error.remedy = None if error.remedy is None else parser.in_flags(error.remedy)
    if error.field is not None and error.file is None:
        error.field = parser.flag(error.field) or error.field
    if "--json" in arguments:
        fields = {"code": error.code, "message": error.message, "file": error.file, "field": error.field}
        content = {**fields, "value": _printable(error.value), "remedy": error.remedy}
        say(to_json({"error": content}))
    else:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
    return error.exit_code


def _printable(value: Any) -> str | int | float | None:
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
        return value
    return repr(value)
