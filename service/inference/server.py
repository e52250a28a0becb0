"""A service on a socket, from its first request to its last.

aiohttp serves: it streams bodies, so that limits come before parsing, cancels a handler whose client has left, and
waits for slow readers. It has no limit for heads that never end and for answers that are never read: `connections`
has."""

import asyncio
import errno
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, HelmError, UsageError
from helmsman.service.inference.connections import Connections
from helmsman.service.inference.generation import Generator
from helmsman.service.inference.jobs import ServedModel
from helmsman.service.inference.routes import application
from helmsman.service.inference.service import Options, Service

_BACKLOG = 2048
_SEND_BUFFER = 2**16
"""Bytes that the kernel keeps for a reader; it would let them grow to megabytes, and a slow one go unnoticed."""
_LINGER_S = 1.0
_POLL_S = 0.02


class _ProtocolErrorFilter(logging.Filter):
    """Leaves out what strangers send that is no HTTP: its traceback, for every one of them, would bury the rest."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is kept."""
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


_log = logging.getLogger("helmsman.service")
_log.addFilter(_ProtocolErrorFilter())


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections; port 0 is any that is free. Raises UsageError where it cannot be
    had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"not an address: {error.strerror}", field="host", value=host) from None
    except UnicodeError:  # a part of a name that is empty or too long
        raise UsageError("not an address", field="host", value=host, remedy="use 127.0.0.1") from None
    result = socket.socket(family, kind, protocol)
    try:
        result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        result.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        result.bind(address)
        result.listen(_BACKLOG)
    except OSError as error:
        result.close()
        raise _unusable(error, host, port) from None
    return result


def _unusable(error: OSError, host: str, port: int) -> HelmError:
    if error.errno == errno.EADDRINUSE:
        remedy = "stop what listens there, or use another; 0 takes any that is free"
        return UsageError(f"the port is occupied on {host}", field="port", value=port, remedy=remedy)
    if error.errno == errno.EACCES:
        remedy = "use one from 1024 on"
        return UsageError(f"not allowed to listen there: {error.strerror}", field="port", value=port, remedy=remedy)
    if error.errno == errno.EADDRNOTAVAIL:
        raise UsageError("not an address of this machine", field="host", value=host, remedy="use 127.0.0.1") from None
    return HardwareUnavailableError(f"cannot listen on {host}, port {port}: {error.strerror}", field="host")


@asynccontextmanager
async def serving(
    listener: socket.socket,
    engine: Generator,
    served: ServedModel,
    options: Options,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Service]:
    """While this lasts, requests are answered; then those that run are given their grace. Closes the socket."""
    service, connections = Service(engine, served, options), Connections(options.idle_s)
    runner = web.AppRunner(
        application(service, connections),
        handler_cancellation=True,
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=options.idle_s,
        lingering_time=_LINGER_S,
        shutdown_timeout=_LINGER_S,
        logger=_log,
    )
    await runner.setup()
    site = web.SockSite(runner, listener, backlog=_BACKLOG, ssl_context=tls)
    await site.start()
    assert runner.server is not None, "set up"
    watches = [asyncio.create_task(service.health.watch()), asyncio.create_task(connections.watch(runner.server))]
    try:
        yield service
    finally:
        await _wind_down(service, site, options.grace_s)
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        service.helper.close()
        await runner.cleanup()


async def _wind_down(service: Service, site: web.SockSite, grace_s: float) -> None:
    """No new requests; those that run have `grace_s` seconds, then they are cancelled."""
    service.health.stop()
    await site.stop()
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            while service.admission.requests:
                await asyncio.sleep(_POLL_S)
    service.end_all()


async def serve(
    listener: socket.socket,
    engine: Generator,
    served: ServedModel,
    options: Options,
    on_ready: Callable[[str], None],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP, tell `on_ready` the address; a second signal ends the grace of those that
    run."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with serving(listener, engine, served, options, tls) as service:

        def end() -> None:
            if stop.is_set():
                service.end_all()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, end)
        on_ready(address(listener, "http" if tls is None else "https"))
        await stop.wait()


def encryption(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """TLS with the chain of certificates in one file, and its key there or in another, both PEM.

    Raises BadInputError naming the file that cannot be used."""
    result = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    remedy = "give --tls-cert the chain and --tls-key its key, both PEM and without a password"
    for path in (certificate, key or certificate):
        try:
            path.open("rb").close()
        except OSError as error:
            raise BadInputError(f"cannot be read: {error.strerror}", file=str(path), remedy=remedy) from None
    try:
        result.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise BadInputError(f"not a certificate with its key: {why}", file=str(certificate), remedy=remedy) from None
    return result


def address(listener: socket.socket, scheme: str = "http") -> str:
    """Return the URL of what is served on a socket."""
    name: Any = listener.getsockname()
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"{scheme}://{host}:{name[1]}"
