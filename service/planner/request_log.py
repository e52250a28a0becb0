"""A line of JSON for every request, and for what else there is to say, on standard error."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_log = logging.getLogger("helmsman.planner.requests")


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON; a mistake's traceback is a field of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        said: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname.lower()}
        fields = getattr(record, "fields", None)
        said |= fields if isinstance(fields, dict) else {"message": record.getMessage()}
        if record.exc_info is not None and record.exc_info[0] is not None:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=True, default=str)


@contextmanager
def logged_to_stderr(requests: bool) -> Iterator[None]:
    """While this lasts, the log goes to standard error, with a line for each of the `requests` or not."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger("helmsman.planner")
    root.addHandler(handler)
    root.propagate = False
    root.setLevel(logging.INFO)
    _log.setLevel(logging.INFO if requests else logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.propagate = True


def log_request(**fields: Any) -> None:
    """Write the line of a request that has ended."""
    if _log.isEnabledFor(logging.INFO):
        _log.info("request", extra={"fields": {"message": "request", **fields}})
