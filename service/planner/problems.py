"""Errors as the problem documents that clients get; no place of the server's files is in them."""

import logging
from math import isfinite
from typing import Any

from helmsman.schemas.errors import HardwareUnavailableError, HelmError, InfeasibleError
from helmsman.schemas.problem import Problem
from helmsman.service.http.refusals import RefusedError

_KINDS = {
    "bad-input": (400, "The document cannot be accepted"),
    "usage": (422, "The question makes no sense"),
    "infeasible": (422, "Nothing fits"),
    "target-missed": (422, "A target was missed"),
    "hardware-unavailable": (503, "The service lacks what this takes"),
    "worker-ended": (503, "The computation was ended"),
    "too-long": (422, "The computation takes too long"),
    "too-much-memory": (422, "The computation takes too much memory"),
    "damaged-store": (503, "The service's store is damaged"),
    "unwritable-store": (507, "The service has no room for jobs"),
}
"""The status of HTTP and the title of problems by their code."""
_INTERNAL = (500, "The service has a mistake")
_TITLES = {
    400: "The request cannot be read",
    401: "A key is needed",
    403: "Not allowed",
    404: "Not there",
    405: "Not a method of this path",
    406: "Not in this form",
    408: "Too slow",
    409: "Not in this state",
    413: "Too large",
    415: "Not this type of content",
    422: "The question makes no sense",
    429: "Too much at once",
    503: "Not now",
}
"""Titles of refusals by status."""
_URN = "urn:helm:problem:"
_MOST_LETTERS = 500
"""Letters of each part of a problem."""

_log = logging.getLogger("helmsman.planner")


class UnwritableStoreError(HardwareUnavailableError):
    """Raised where jobs cannot be kept: the disk is full, most likely."""

    code = "unwritable-store"


def problem_of(error: HelmError) -> Problem:
    """Return the problem that an error of the library is to a client."""
    status, title = _KINDS.get(error.code, _INTERNAL)
    return Problem(
        type=f"{_URN}{error.code}",
        title=title,
        status=status,
        detail=_cut(error.message),
        code=error.code,
        field=None if error.field is None else _cut(error.field),
        value=_shown(error.value),
        remedy=None if error.remedy is None else _cut(error.remedy),
        lacks=(error.lacks or None) if isinstance(error, InfeasibleError) else None,
    )


def refusal_problem(refusal: RefusedError) -> Problem:
    """Return the problem that a refusal is to a client."""
    code = refusal.reason.replace("_", "-")
    title = _TITLES.get(refusal.status, _INTERNAL[1])
    detail, field = _cut(refusal.message), refusal.param
    return Problem(type=f"{_URN}{code}", title=title, status=refusal.status, detail=detail, code=code, field=field)


def internal_problem(error: Exception) -> Problem:
    """Return the problem of a mistake of ours, which the log has in full and the client does not."""
    _log.error("internal error", exc_info=error)
    return problem_of(HelmError("the service has a mistake, which its log describes"))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} ..."


def _shown(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else repr(value)
    return _cut(value if isinstance(value, str) else repr(value))
