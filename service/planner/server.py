"""The service on a socket, from its first request to its last."""

import asyncio
import gc
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from helmsman.service.http.idle_connections import IdleConnections
from helmsman.service.http.listening import BACKLOG, address
from helmsman.service.planner.application import application
from helmsman.service.planner.gateway import Gateway
from helmsman.service.planner.http_protocol import Doorway, sweep
from helmsman.service.planner.jobs.store import StorePlaces
from helmsman.service.planner.options import WebOptions
from helmsman.service.planner.service import PlannerService, planner_service

_POLL_S = 0.02


@asynccontextmanager
async def web_serving(
    listener: socket.socket,
    options: WebOptions,
    places: StorePlaces,
    lock: int,
    tls: ssl.SSLContext | None = None,
    prepared: bool = True,
) -> AsyncIterator[tuple[PlannerService, int]]:
    """While this lasts, requests are answered; then those that run are given their grace, and jobs stay in the store.

    Gives the service, and the number of jobs that another server had left. `prepared`: what takes a second to make is
    made while workers start, since threads that compute keep the event loop waiting. Closes the socket.

    Raises BadInputError for a damaged store, HardwareUnavailableError where the system has no room for it."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it tells of every stranger that speaks no HTTP
    async with planner_service(options, places, lock) as service:
        app = application(service)
        early = (app.description.content(), service.prepare()) if prepared else ()
        recovered, *_ = await asyncio.gather(service.start(), *early)
        doorway = _doorway(service, app)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(doorway, sock=listener, backlog=BACKLOG, ssl=tls)

        def told(count: int) -> None:
            service.connections = count

        watch = asyncio.create_task(sweep(doorway, told))
        try:
            yield service, recovered
        finally:
            service.stopping.set()
            server.close()
            await _wind_down(doorway.state, options.grace_s)
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch


def _doorway(service: PlannerService, app: Gateway) -> Doorway:
    config = Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=max(1, round(service.options.idle_s)),
    )
    config.load()
    return Doorway(config, ServerState(), service.options.connections, IdleConnections(service.options.idle_s))


async def _wind_down(state: ServerState, grace_s: float) -> None:
    """Let requests that run have `grace_s` seconds; then they are cancelled, and all connections closed."""
    connections: set[Any] = set(state.connections)
    for connection in connections:
        connection.shutdown()
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            while state.tasks:
                await asyncio.sleep(_POLL_S)
    for task in list(state.tasks):
        task.cancel()
    await asyncio.gather(*state.tasks, return_exceptions=True)
    remaining: set[Any] = set(state.connections)
    for connection in remaining:
        connection.transport.abort()


async def serve_planner(
    listener: socket.socket,
    options: WebOptions,
    places: StorePlaces,
    lock: int,
    on_ready: Callable[[str, int], None],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; `on_ready` hears the address, and the number of jobs recovered."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with web_serving(listener, options, places, lock, tls) as (_, recovered):
        gc.collect()
        gc.freeze()  # what is there now stays: looking for garbage in it would take a tenth of a second each time
        on_ready(address(listener, "http" if tls is None else "https"), recovered)
        await stop.wait()
