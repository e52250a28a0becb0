"""The error that a request is refused with, in whatever shape a server tells it."""

from collections.abc import Mapping


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


class StalledError(RefusedError):
    """A reader took nothing for too long; the connection is gone."""

    def __init__(self) -> None:
        super().__init__(503, "slow_reader", "what was generated was not read in time")
