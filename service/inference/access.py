"""Access control of the HTTP server: it checks API keys and the headers Host, Origin and Content-Type of every request.

A web page of any site can make a browser on this machine send requests to a local server. Two headers give that away:
Host has the name that the page used (DNS rebinding lets a name of its own point to 127.0.0.1), and Origin has the site
of the page (CORS)."""

import hmac
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from helmsman.service.inference.refusals import RefusedError

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN_PATHS = ("/health",)
"""Paths that need no API key: monitoring reads them."""

_SCHEME = "bearer"
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Access:
    """The rules by which a server lets requests in.

    `keys`: API keys, of which a request must have one; with none every request is let in that its headers allow.
    `hosts`: host names that Host may have beside `localhost` and IP addresses. `origins`: sites whose pages may send
    requests, as browsers write them in Origin (https://example.org)."""

    keys: tuple[str, ...] = ()
    hosts: Collection[str] = ()
    origins: Collection[str] = ()

    @property
    def middleware(self) -> Any:
        """Return the middleware that lets requests in, or refuses them before their bodies are read."""

        @web.middleware
        async def admit(request: web.Request, handler: _Handler) -> web.StreamResponse:
            self.check(request)
            page = request.headers.get(hdrs.ORIGIN)
            if request.method == hdrs.METH_OPTIONS and page is not None:
                return web.Response(status=204, headers=_preflight(request))
            self.check_key(request)
            _check_type(request)
            return await handler(request)

        return admit

    async def tell_page(self, request: web.Request, response: web.StreamResponse) -> None:
        """Let the browser show an answer to the page that asked, if it may ask: a signal before headers are sent."""
        page = request.headers.get(hdrs.ORIGIN)
        if page is not None and self._may_ask(page, request.headers.get(hdrs.HOST, "")):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = page
            response.headers[hdrs.VARY] = hdrs.ORIGIN

    def check(self, request: web.Request) -> None:
        """Raise RefusedError where the server is called by a name, or from a page, that is not one of its own."""
        host = request.headers.get(hdrs.HOST, "")
        if not host and request.path in OPEN_PATHS:
            return  # probes of HTTP/1.0
        if not self._is_own(name_in(host)):
            message = f"this server is not called {host[:100]!r}; --allow-host lets it be called so"
            raise RefusedError(403, "host", message)
        page = request.headers.get(hdrs.ORIGIN)
        if page is not None and not self._may_ask(page, host):
            message = f"pages of {page[:100]!r} may not ask; --allow-origin lets them"
            raise RefusedError(403, "origin", message)

    def check_key(self, request: web.Request) -> None:
        """Raise RefusedError where a key is needed and the request has none of them."""
        if not self.keys or request.path in OPEN_PATHS:
            return
        said = request.headers.get(hdrs.AUTHORIZATION, "")
        scheme, _, rest = said.partition(" ")
        given = rest.encode("utf-8", "surrogateescape") if scheme.lower() == _SCHEME else b""
        matches = [hmac.compare_digest(given, key.encode()) for key in self.keys]  # all, in a time that tells nothing
        if not any(matches):
            message = "a key is needed: send 'Authorization: Bearer KEY'" if not said else "not a key of this server"
            raise RefusedError(401, "invalid_api_key", message)

    def _is_own(self, name: str) -> bool:
        return bool(self.keys) or _is_local(name) or _is_address(name) or name in self.hosts

    def _may_ask(self, page: str, host: str) -> bool:
        """A page of this server itself, of this machine, or one that was named; any, where a key is asked for."""
        if self.keys or "*" in self.origins or page in self.origins:
            return True
        try:
            parts = urlsplit(page)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and (
            parts.netloc.lower() == host.lower() or _is_local(parts.hostname or "")
        )


def _preflight(request: web.Request) -> dict[str, str]:
    """Return the headers that answer a browser's preflight (CORS): the page may use every method there is, and the
    request headers that it names, as client libraries send headers of their own."""
    named = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
    return {str(hdrs.ACCESS_CONTROL_ALLOW_METHODS): "GET, POST", str(hdrs.ACCESS_CONTROL_ALLOW_HEADERS): named}


def _check_type(request: web.Request) -> None:
    """Bodies say that they are JSON, which pages of other sites cannot without being let in first."""
    if request.method == hdrs.METH_POST and request.content_type != _JSON:
        message = f"send JSON with 'Content-Type: {_JSON}', not {request.content_type[:80]!r}"
        raise RefusedError(415, "content_type", message)


def is_loopback(host: str) -> bool:
    """Whether what listens on `host` is reached from this machine only."""
    return _is_local(host) or (_is_address(host) and ip_address(host.split("%")[0]).is_loopback)


def name_in(host: str) -> str:
    """Return the name in a `Host` header, in small letters and without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_local(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    """Addresses are never another's name for this machine."""
    try:
        ip_address(name.split("%")[0])
    except ValueError:
        return False
    return True
