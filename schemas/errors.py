"""Every error a user can cause: one line, the place, the value, the remedy and the exit code."""

import errno
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar


class HelmError(Exception):
    """A failure with a place and a remedy; the command line turns it into one line and an exit code.

    `doubts`: what else is doubtful in what was given, if there is something; `reported`: whether the command's document
    has been printed, so that the error is no document of its own."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1
    doubts: tuple[str, ...] = ()
    reported: bool = False

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        field: str | None = None,
        value: Any = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.field = field
        self.value = value
        self._remedy = remedy

    @property
    def remedy(self) -> str | None:
        """Return the change of the question, or of the machine, that would do, as a clause of a sentence."""
        return self._remedy

    @remedy.setter
    def remedy(self, remedy: str | None) -> None:
        self._remedy = remedy

    def __str__(self) -> str:
        place = ": ".join(_cut(part) for part in (self.file, self.field) if part)
        got = "" if self.value is None else f" (got {_short(self.value)})"
        remedy = f"; {_cut(self.remedy)}" if self.remedy else ""
        return _one_line(f"{place + ': ' if place else ''}{_cut(self.message)}{got}{remedy}")

    def at(self, file: str) -> "HelmError":
        """Name `file` if the error names none; returns itself so it can be raised."""
        self.file = self.file or file
        return self

    def after_report(self) -> "HelmError":
        """Say that the document of the command has been printed; returns itself so it can be raised."""
        self.reported = True
        return self


class UsageError(HelmError):
    """Arguments that make no sense together."""

    code = "usage"
    exit_code = 2


class InfeasibleError(HelmError):
    """No plan meets the constraints; `remedy` is the smallest change that would, `lacks` its bytes by memory.

    `largest`: finds the most sequences per batch that would fit, 0 for none; None where nobody looks for that. It may
    take long, and many refusals are never shown: it is called when the answer is first needed."""

    code = "infeasible"
    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        lacks: Mapping[str, int] | None = None,
        largest: Callable[[], int] | None = None,
        **place: Any,
    ) -> None:
        super().__init__(message, **place)
        self.lacks = {} if lacks is None else dict(lacks)
        self._largest, self._names_batches = largest, True

    @cached_property
    def largest_batch(self) -> int | None:
        """Return the most sequences per batch that would fit, 0 for none; None where nobody looks for that, or where
        looking fails: the refusal is what is to be reported."""
        try:
            return None if self._largest is None else self._largest()
        except (HelmError, MemoryError):
            return None

    @property
    def remedy(self) -> str | None:
        """Return the smallest change that would do, as a clause of a sentence, and the largest batch that would fit
        beside it; what was put in the remedy's place says all by itself."""
        batches = f"batches of at most {self.largest_batch}" if self._names_batches and self.largest_batch else None
        return ", or ".join(clause for clause in (self._remedy, batches) if clause) or None

    @remedy.setter
    def remedy(self, remedy: str | None) -> None:
        self._remedy, self._names_batches = remedy, False

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts that pickle rebuilds the error from: the largest batch in place of the search for it, which
        no other process could call."""
        state = {**vars(self), "largest_batch": self.largest_batch, "_largest": None}
        return type(self), (self.message,), state


class TargetMissedError(HelmError):
    """A tolerance or an SLO was missed."""

    code = "target-missed"
    exit_code = 4


class DisturbedError(HelmError):
    """A measurement during which others took the processors: it shows neither that a target was kept nor that it was
    missed. The hardware was not available to it, hence the exit code."""

    code = "disturbed"
    exit_code = 6


class BadInputError(HelmError):
    """A document or file that cannot be accepted."""

    code = "bad-input"
    exit_code = 5


class UnequalBlocksError(BadInputError):
    """A model that is not made of equal dense blocks, where something works on such models only; `model`: its name,
    `has`: what it has instead."""

    def __init__(self, model: str, has: str, remedy: str) -> None:
        super().__init__(f"{model} has {has}, where equal dense blocks are needed", field="model", remedy=remedy)
        self.model, self.has = model, has


class HardwareUnavailableError(HelmError):
    """A device, link or profile that this machine does not have."""

    code = "hardware-unavailable"
    exit_code = 6


def unwritable(error: OSError, file: str, remedy: str = "choose another place") -> HelmError:
    """Return the error that a failed write to `file` is to the user: a full disk, or a place that cannot be written."""
    if error.errno in _FULL:
        return HardwareUnavailableError("no room on the disk", file=file, remedy=f"free some space or {remedy}")
    return UsageError(f"cannot be written: {error.strerror}", file=file, remedy=remedy)


def refused_by_system(error: OSError) -> HardwareUnavailableError | None:
    """Return the error that a user sees where the system has no memory, thread, open file or disk space left, or an
    input or output failed; None for any other error, which is a mistake in what was asked."""
    if error.errno not in (*_FULL, *_SPENT):
        return None
    remedy = "free what is in use, or allow more (ulimit -a)"
    return HardwareUnavailableError(f"the system refuses: {error.strerror}", file=error.filename, remedy=remedy)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SPENT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO)


def _one_line(text: str) -> str:
    """`text` with its control characters escaped: file names and arguments may hold any."""
    return re.sub(r"[\x00-\x1f\x7f]", lambda match: repr(match[0])[1:-1], text)


def _cut(text: str) -> str:
    """`text` so that a line can be read: names in documents, and what libraries say, may be of any length."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]} ... ({len(text)} characters)"


_LONGEST = 500
"""Letters of each part of an error's line."""


def _short(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
