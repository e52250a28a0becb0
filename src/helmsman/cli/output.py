"""The output of commands: text that standard output can take, one JSON document, files that are complete."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helmsman.schemas.errors import HardwareUnavailableError, unwritable
from helmsman.schemas.write import whole_file


class OutputError(HardwareUnavailableError):
    """Raised where a text cannot be printed: standard output is full or broken."""


def say(text: str, end: str = "\n") -> None:
    """Print to standard output, now: the one place that does.

    What its encoding lacks is escaped as in JSON. Raises BrokenPipeError when the reader has left, else OutputError."""
    try:
        print(encodable(text, getattr(sys.stdout, "encoding", None) or "utf-8"), end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        problem = unwritable(error, "standard output")
        raise OutputError(problem.message, file=problem.file, remedy=problem.remedy) from None


def discard_output() -> None:
    """Let what is buffered go nowhere, so that the interpreter's own flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def encodable(text: str, encoding: str = "utf-8") -> str:
    """Return a text with escapes for letters that an encoding does not have, such as bytes of a path."""
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
    write_bytes(path, encodable(text, "utf-8").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes, complete or not at all. Raises what `whole_file` raises."""
    with whole_file(path) as stream:
        stream.write(content)
