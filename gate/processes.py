"""Processes that measure: each fresh, within a time limit, and what they print."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, HelmError

_OUTPUT_LIMIT = 4 * 2**20
"""Bytes that are read of what a process prints."""
_SHOWN = 1000
"""Characters that are shown of what a process says last."""
_UNAVAILABLE = HardwareUnavailableError.exit_code


def printed_by(argv: Sequence[str], folder: Path, limit_s: float, file: str, field: str) -> str:
    """Run a process in `folder` and return what it printed; `file`, `field`: where it is asked for, for errors.

    Raises BadInputError where it cannot be started, fails, or takes longer than `limit_s` seconds;
    HardwareUnavailableError where it ends with that exit code."""
    place = {"file": file, "field": field}
    with TemporaryFile() as out, TemporaryFile() as err:
        try:
            code = _code_of(argv, folder, limit_s, out, err)
        except subprocess.TimeoutExpired:
            remedy = "measure less, or allow more with limit_s"
            raise BadInputError("the command takes too long", value=f"{limit_s:g} s", remedy=remedy, **place) from None
        except OSError as error:
            remedy = "name a program that this machine has"
            message = f"the command cannot be started: {error.strerror}"
            raise BadInputError(message, value=argv[0], remedy=remedy, **place) from None
        if code != 0:
            raise _failure(code, last_line(_read(err))[:_SHOWN], place)
        return _read(out)


def _code_of(argv: Sequence[str], folder: Path, limit_s: float, out: IO[bytes], err: IO[bytes]) -> int:
    """Return the exit code of a process; one that takes too long is ended with all that it has started."""
    process = subprocess.Popen(
        argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
    )
    try:
        return process.wait(limit_s)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def last_line(text: str) -> str:
    """Return the last line that is not empty; empty where there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _failure(code: int, told: str, place: dict[str, str]) -> HelmError:
    error = HardwareUnavailableError if code == _UNAVAILABLE else BadInputError
    message = f"the command fails: {told}" if told else "the command fails and says nothing"
    return error(message, value=f"exit code {code}", remedy="run it by hand and correct it", **place)


def _read(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(_OUTPUT_LIMIT).decode("utf-8", "replace")
