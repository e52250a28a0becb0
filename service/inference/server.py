"""A service on a socket, from its first request to its last.

aiohttp serves: it streams bodies, so that limits come before parsing, cancels a handler whose client has left, and
waits for slow readers. It has no limit for heads that never end and for answers that are never read: `connections`
has."""

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from helmsman.service.http.listening import BACKLOG, address
from helmsman.service.inference.connections import Connections
from helmsman.service.inference.generation import Generator
from helmsman.service.inference.jobs import ServedModel
from helmsman.service.inference.routes import application
from helmsman.service.inference.service import Options, Service

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
    site = web.SockSite(runner, listener, backlog=BACKLOG, ssl_context=tls)
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
