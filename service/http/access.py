"""The rules by which servers let requests in: API keys, and the headers Host, Origin and Content-Type.

A web page of any site can make a browser on this machine send requests to a local server. Two headers give that away:
Host has the name that the page used (DNS rebinding lets a name of its own point to 127.0.0.1), and Origin has the site
of the page (CORS)."""

import hmac
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from helmsman.service.http.refusals import RefusedError

OPEN_PATHS = ("/health",)
"""Paths that need no API key: monitoring reads them."""

_SCHEME = "bearer"
_JSON = "application/json"
_EXPOSED = "Location, ETag, Retry-After, X-Request-Id"
"""Headers of answers that pages of other sites may read."""
_NO_HOST = frozenset("@/?#\\")
"""Letters that `Host` never has: what comes before or after them in an address is not the name that was called."""


@dataclass(frozen=True, slots=True)
class Access:
    """The rules by which a server lets requests in.

    `keys`: API keys, of which a request must have one; with none every request is let in that its headers allow.
    `hosts`: host names that Host may have beside `localhost` and IP addresses. `origins`: sites whose pages may send
    requests, as browsers write them in Origin (https://example.org). `open_paths`: paths that need no key."""

    keys: tuple[str, ...] = ()
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    open_paths: Collection[str] = OPEN_PATHS

    def check(self, path: str, host: str, page: str | None) -> None:
        """Raise RefusedError where the server is called by a name, or from a page, that is not one of its own.

        `host`, `page`: the headers Host and Origin."""
        if not host and path in OPEN_PATHS:
            return  # probes of HTTP/1.0
        name = name_in(host)
        if (host and not name) or not self._is_own(name):
            message = f"this server is not called {host[:100]!r}; --allow-host lets it be called so"
            raise RefusedError(403, "host", message)
        if page is not None and not self.may_ask(page, host):
            message = f"pages of {page[:100]!r} may not ask; --allow-origin lets them"
            raise RefusedError(403, "origin", message)

    def check_key(self, path: str, said: str) -> str | None:
        """Return the key that a request has, None where none is needed. Raises RefusedError where one is and the
        request has none of them. `said`: the header Authorization."""
        if not self.keys or path in self.open_paths:
            return None
        scheme, _, rest = said.partition(" ")
        given = rest.encode("utf-8", "surrogateescape") if scheme.lower() == _SCHEME else b""
        matches = [hmac.compare_digest(given, key.encode()) for key in self.keys]  # all, in a time that tells nothing
        if not any(matches):
            message = "a key is needed: send 'Authorization: Bearer KEY'" if not said else "not a key of this server"
            raise RefusedError(401, "invalid_api_key", message)
        return self.keys[matches.index(True)]

    def may_ask(self, page: str, host: str) -> bool:
        """Return whether a page may ask: one of this server itself, of this machine, or one that was named; any, where
        a key is asked for."""
        if self.keys or "*" in self.origins or page in self.origins:
            return True
        try:
            parts = urlsplit(page)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and (
            parts.netloc.lower() == host.lower() or _is_local(parts.hostname or "")
        )

    def _is_own(self, name: str) -> bool:
        return bool(self.keys) or _is_local(name) or _is_address(name) or name in self.hosts


def check_type(method: str, kind: str) -> None:
    """Raise RefusedError for a body that does not say that it is JSON, which pages of other sites cannot without being
    let in first. `kind`: the media type alone."""
    if method == "POST" and kind != _JSON:
        message = f"send JSON with 'Content-Type: {_JSON}', not {kind[:80]!r}"
        raise RefusedError(415, "content_type", message)


def preflight_headers(methods: str, named: str) -> dict[str, str]:
    """Return the headers that answer a browser's preflight (CORS): the page may use every method there is, and the
    request headers that it names, as client libraries send headers of their own."""
    return {"Access-Control-Allow-Methods": methods, "Access-Control-Allow-Headers": named}


def page_headers(page: str) -> dict[str, str]:
    """Return the headers that let the browser show an answer, and what it says of itself, to the page that asked."""
    return {"Access-Control-Allow-Origin": page, "Access-Control-Expose-Headers": _EXPOSED, "Vary": "Origin"}


def is_loopback(host: str) -> bool:
    """Whether what listens on `host` is reached from this machine only."""
    return _is_local(host) or (_is_address(host) and ip_address(host.split("%")[0]).is_loopback)


def name_in(host: str) -> str:
    """Return the name in a `Host` header, in small letters and without its port; none where it is more than that."""
    if not _NO_HOST.isdisjoint(host):
        return ""
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
