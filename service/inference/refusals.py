"""The error that a request is refused with: a status, and OpenAI's error object."""

from collections.abc import Mapping
from typing import Any

from helmsman.schemas.errors import HelmError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "internal_error",
    503: "service_unavailable",
}


class RefusedError(Exception):
    """A request that is not answered as asked.

    `reason`: one of a few words, which metrics count by; `param`: the field at fault; `retry_s`: when to come again."""

    def __init__(
        self, status: int, reason: str, message: str, *, param: str | None = None, retry_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.param, self.retry_s = status, reason, message, param, retry_s

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers beside the body."""
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return {} if self.retry_s is None else {"Retry-After": str(self.retry_s)}

    @property
    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        return error_body(self.status, self.message, self.reason, self.param)


class StalledError(RefusedError):
    """A reader took nothing for too long; the connection is gone."""

    def __init__(self) -> None:
        super().__init__(503, "slow_reader", "what was generated was not read in time")


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
