"""The gateway before all paths, as ASGI: who may ask, how often, under which id; what every answer says of itself; how
long a reader may take nothing; a line of the log and a count for each request."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from typing import Protocol
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from helmsman.service.http.access import Access, check_type, page_headers, preflight_headers
from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.clients import client_of
from helmsman.service.planner.problems import internal_problem, refusal_problem
from helmsman.service.planner.request_log import log_request
from helmsman.service.planner.service import GoneError, PlannerService

ABORT = "helmsman.abort"
"""The extension of a scope that ends its connection at once."""
UNREAD = "helmsman.unread"
"""The extension of a scope that gives the bytes of answers that the other end of its connection has not taken yet."""

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = "GET, HEAD, POST, DELETE"
_PIECE = 2**16
"""Bytes that are sent at once: of what is not read, no more than this and the kernel's buffer is held."""
_UNQUOTED = ("/health", "/ready", "/metrics")
"""Paths that count for no quota."""
_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
_SAFE = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Headers of every answer: pages run nothing from elsewhere, are framed by nobody, and tell nobody where they were."""


class Described(Protocol):
    """A description that is made when it is first asked for."""

    async def content(self) -> tuple[bytes, str]:
        """Return it, and what it is known by."""


class Gateway:
    """The application with all that holds for every path; `description`: of what it answers."""

    def __init__(self, app: ASGIApp, service: PlannerService, description: Described) -> None:
        self._app, self._service, self.description = app, service, description

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        exchange = _Exchange(scope, receive, send, self._service)
        try:
            answered = exchange.admit()
            if answered is None:
                await self._app(exchange.inner, receive, exchange.send)
            else:
                await exchange.reply(*answered)
        except RefusedError as refusal:
            await exchange.refuse(refusal)
        except TimeoutError:
            exchange.abort()
        except (GoneError, OSError):
            exchange.abort()
        except Exception as error:
            await exchange.fail(error)
        finally:
            exchange.ended()


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, service: PlannerService) -> None:
        self.inner, self._send, self._service = scope, send, service
        self._unread: Callable[[], int] = scope.get("extensions", {}).get(UNREAD, lambda: 0)
        self._loop = asyncio.get_running_loop()
        self._begin, self._status, self._bytes = time.monotonic(), 0, 0
        self._begun = self._ended = False
        self._headers = _first_headers(scope["headers"])
        given = self._headers.get("x-request-id", "")
        self._id = given if _ID.fullmatch(given) else uuid4().hex
        self._client = scope["client"][0] if scope.get("client") else "local"
        if scope["method"] == "HEAD" and not scope["path"].endswith("/events"):
            self.inner = {**scope, "method": "GET"}
        self.inner.setdefault("state", {})["request_id"] = self._id

    def admit(self) -> tuple[int, dict[str, str]] | None:
        """Let the request in, or return the answer that it has already. Raises RefusedError."""
        access, path, headers = self._service.options.access, self.inner["path"], self._headers
        page = headers.get("origin")
        access.check(path, headers.get("host", ""), page)
        if self.inner["method"] == "OPTIONS" and page is not None:
            return 204, preflight_headers(_METHODS, headers.get("access-control-request-headers", "")[:1000])
        key = None if is_open(path, access) else access.check_key(path, headers.get("authorization", ""))
        self._client = client_of(self._client, key)
        self.inner["state"]["client"] = self._client
        if path not in _UNQUOTED:
            self._service.quotas.request(self._client)
        check_type(self.inner["method"], headers.get("content-type", "").partition(";")[0].strip().lower())
        return None

    async def send(self, message: Message) -> None:
        """Send a part of the answer, a piece after the other, so that little of it waits unread. Raises TimeoutError
        where the reader takes nothing for too long."""
        if message["type"] == "http.response.start":
            self._begun, self._status = True, message["status"]
            message = {**message, "headers": [*message["headers"], *self._own_headers()]}
        else:
            self._ended = not message.get("more_body", False)
        body = message.get("body", b"")
        self._bytes += len(body)
        if len(body) <= _PIECE:
            await self._taken(message)
            return
        for place in range(0, len(body), _PIECE):
            more = message.get("more_body", False) or place + _PIECE < len(body)
            piece = bytes(memoryview(body)[place : place + _PIECE])
            await self._taken({"type": "http.response.body", "body": piece, "more_body": more})

    async def _taken(self, message: Message) -> None:
        """Send a message, or a piece of one, however slowly it is read. Raises TimeoutError where the reader takes
        nothing for too long."""
        async with asyncio.timeout(None) as limit:
            self._watch(limit, self._unread() + len(message.get("body", b"")))
            try:
                await self._send(message)
            finally:
                self._next_look.cancel()

    def _watch(self, limit: asyncio.Timeout, unread: int) -> None:
        """Look later whether the reader has taken anything of the bytes that are unread now."""
        self._next_look = self._loop.call_later(self._service.options.stall_s, self._look, limit, unread)

    def _look(self, limit: asyncio.Timeout, unread: int) -> None:
        left = self._unread()
        if 0 < left < unread:
            self._watch(limit, left)
        else:
            limit.reschedule(self._loop.time())

    async def reply(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """Answer with a whole body."""
        said = {**headers, "Content-Length": str(len(body))} if status != 204 else headers
        await self.send({"type": "http.response.start", "status": status, "headers": _encoded(said)})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: RefusedError) -> None:
        """Answer with a refusal."""
        self._service.metrics.refused(refusal.reason)
        problem = refusal_problem(refusal).model_copy(update={"instance": self.inner["path"][:500]})
        headers = {**refusal.headers, "Content-Type": "application/problem+json"}
        await self._last(problem.status, headers, problem.to_json().encode())

    async def fail(self, error: Exception) -> None:
        """Answer with a mistake of ours."""
        if self._ended:
            return  # it has been told, and logged
        problem = internal_problem(error)
        await self._last(problem.status, {"Content-Type": "application/problem+json"}, problem.to_json().encode())

    async def _last(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if self._begun:
            self.abort()
            return
        try:
            await self.reply(status, headers, body)
        except (TimeoutError, OSError):
            self.abort()

    def abort(self) -> None:
        """End the connection, whatever is still to be read."""
        end = self.inner.get("extensions", {}).get(ABORT)
        if end is not None:
            end()

    def ended(self) -> None:
        """Count the request, and write its line."""
        seconds = time.monotonic() - self._begin
        route = getattr(self.inner.get("route"), "path", "-")
        self._service.metrics.ended(route, self.inner["method"], self._status, seconds)
        log_request(
            id=self._id,
            client=self._client,
            method=self.inner["method"],
            path=self.inner["path"][:500],
            route=route,
            status=self._status,
            seconds=round(seconds, 6),
            bytes=self._bytes,
        )

    def _own_headers(self) -> list[tuple[bytes, bytes]]:
        said = {**_SAFE, "X-Request-Id": self._id, "Date": formatdate(usegmt=True)}
        page = self._headers.get("origin")
        if page is not None and self._service.options.access.may_ask(page, self._headers.get("host", "")):
            said |= page_headers(page)
        return _encoded(said)


def is_open(path: str, access: Access) -> bool:
    """Return whether a path needs no key."""
    return path in access.open_paths or path.startswith("/assets/")


def _first_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name; of those that come twice, the first."""
    first: dict[str, str] = {}
    for name, value in headers:
        first.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return first


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
