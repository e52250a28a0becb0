"""Requests to a planner service: keys, waiting where it has too much to do, and what answers become."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx2

from helmsman.client.errors import error_of, problem_in
from helmsman.schemas.base import Document
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.read import parse_document

DocumentT = TypeVar("DocumentT", bound=Document)

JSON = "application/json"
BUSY = (429, 503)
"""Statuses of a service that has too much to do now."""
_LEAST_WAIT_S = 0.05
_MOST_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Connection:
    """Asks one service. `patience_s`: seconds for which a busy service is asked again; `clock`, `sleep`: of these."""

    http: httpx2.Client
    patience_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def document(self, of: type[DocumentT], path: str, **query: str) -> DocumentT:
        """Return the document at a path. Raises what `ask` raises."""
        return self.read(of, self.ask("GET", path, query=query))

    def ask(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
    ) -> httpx2.Response:
        """Return the answer to a request. Raises HelmError for a problem, HardwareUnavailableError where no service
        answers."""
        headers = {"Accept": accept, **({} if content is None else {"Content-Type": JSON})}
        end = self.clock() + self.patience_s
        while True:
            with self._reached():
                answer = self.http.request(method, path, content=content, params=query, headers=headers)
            if answer.status_code < 400:
                return answer
            self._wait(answer.status_code, answer.headers.get("Retry-After", ""), answer.content, end)

    def events(self, path: str, patience_s: float | None = None) -> Iterator[httpx2.ServerSentEvent]:
        """Yield the events at a path until the stream ends; `patience_s`: if it is to be less than that of other
        requests. Raises as `ask`."""
        headers = {"Accept": "text/event-stream"}
        end = self.clock() + (self.patience_s if patience_s is None else min(patience_s, self.patience_s))
        while True:
            with self._reached(), self.http.stream("GET", path, headers=headers) as answer:
                if answer.status_code < 400:
                    yield from httpx2.EventSource(answer)
                    return
                content = answer.read()
            self._wait(answer.status_code, answer.headers.get("Retry-After", ""), content, end)

    def _wait(self, status: int, retry: str, content: bytes, end: float) -> None:
        """Wait as long as a busy service says. Raises the error of an answer after which there is nothing to wait for,
        or not before `end`."""
        wait_s = _wait_s(retry)
        if status not in BUSY or wait_s is None or self.clock() + wait_s > end:
            raise error_of(problem_in(content, status))
        self.sleep(wait_s)

    def read(self, kind: type[DocumentT], answer: httpx2.Response) -> DocumentT:
        """Return the document that an answer is. Raises BadInputError for something else."""
        return parse_document(kind, answer.content, str(answer.url))

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Tell of a service that is not there, or is gone."""
        try:
            yield
        except httpx2.TransportError as error:
            told = str(error) or type(error).__name__
            raise HardwareUnavailableError(
                f"no planner service answers: {told}",
                field="url",
                value=str(self.http.base_url),
                remedy="start one with helm-web, or give its URL",
            ) from None


def _wait_s(retry: str) -> float | None:
    """Return the seconds after which a busy service is to be asked again; None where it does not say."""
    return min(max(float(retry), _LEAST_WAIT_S), _MOST_WAIT_S) if retry.isdecimal() else None
