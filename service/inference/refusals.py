"""Refusals as OpenAI's error objects, and the errors of the library as refusals."""

from typing import Any

from helmsman.schemas.errors import HelmError
from helmsman.service.http.refusals import RefusedError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "internal_error",
    503: "service_unavailable",
}


def refusal_body(problem: RefusedError) -> dict[str, Any]:
    """Return OpenAI's error object of a refusal."""
    return error_body(problem.status, problem.message, problem.reason, problem.param)


def error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
    """OpenAI's error object, as clients of its interface parse it."""
    kind = _TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def refused(error: HelmError) -> RefusedError:
    """Return the refusal that says what is wrong with a request, in its own terms."""
    got = "" if error.value is None else f" (got {str(error.value)[:80]!r})"
    place = f"{error.field}: " if error.field else ""
    remedy = f"; {error.remedy}" if error.remedy else ""
    return RefusedError(400, "invalid_request", f"{place}{error.message}{got}{remedy}", param=error.field)
