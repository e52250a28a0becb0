"""Admits jobs while a client, and all clients together, have fewer unfinished ones than their limits."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.options import ClientLimits, JobLimits


class JobAdmission:
    """Lets jobs in; `unfinished`: the number of jobs that have not ended, of one client or all. Used in one event
    loop."""

    def __init__(self, limits: JobLimits, clients: ClientLimits, unfinished: Callable[[str | None], int]) -> None:
        self._limits, self._clients, self._unfinished = limits, clients, unfinished
        self.coming: Counter[str] = Counter()

    def check(self, client: str) -> None:
        """Raise RefusedError (429) where a client, or all together, may have no more jobs."""
        if self._unfinished(client) + self.coming[client] >= self._clients.jobs:
            message = f"{self._clients.jobs} jobs of yours are queued or running, as many as may be"
            raise RefusedError(429, "jobs", message, retry_s=5)
        if self._unfinished(None) + self.coming.total() >= self._limits.queued:
            message = f"{self._limits.queued} jobs are queued or running, as many as may be"
            raise RefusedError(429, "queue_full", message, retry_s=10)

    @contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """While this lasts, count a job that comes but is not yet among the unfinished, so that many that come at once
        are not all let in. Raises RefusedError as `check`."""
        self.check(client)
        self.coming[client] += 1
        try:
            yield
        finally:
            self.coming[client] -= 1
            if not self.coming[client]:
                del self.coming[client]
