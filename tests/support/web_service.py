"""A planner service on a port and a store of its own, and how tests talk with it."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from helmsman.service.http.listening import listen
from helmsman.service.planner.jobs.store import held_store
from helmsman.service.planner.options import WebOptions
from helmsman.service.planner.server import web_serving
from helmsman.service.planner.service import PlannerService

OPTIONS = WebOptions(workers=1, grace_s=5.0, patience_s=30.0)
QUESTION: dict[str, Any] = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}
ENDED = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class WebReply:
    """A response, `body` as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class WebPort:
    """Where a planner service listens. Every request has a connection of its own."""

    port: int

    def ask(self, method: str, path: str, content: Any = None, **headers: str) -> WebReply:
        """The reply to a request; `content`: bytes, or what is JSON of."""
        body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        said = {"Content-Type": "application/json"} if body is not None else {}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, said)
            reply = connection.getresponse()
            return WebReply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> WebReply:
        return self.ask("GET", path, **headers)

    def post(self, path: str, content: Any, **headers: str) -> WebReply:
        return self.ask("POST", path, content, **headers)

    def job(self, path: str, content: Any) -> dict[str, Any]:
        """A job, once it has ended."""
        taken = self.post(path, content)
        assert taken.status == 202, taken
        return self.ended(taken.headers["location"])

    def ended(self, place: str) -> dict[str, Any]:
        """The job at a place, once it has ended."""
        return self.until(place, lambda job: job["state"] in ENDED)

    def until(self, place: str, holds: Any) -> dict[str, Any]:
        """The document at a place, once something holds of it."""
        end = time.monotonic() + 60
        while not holds(document := self.get(place).document):
            assert time.monotonic() < end, document
            time.sleep(0.005)
        return document


def until(holds: Callable[[], object]) -> None:
    """Wait for something that happens by itself; half a minute is for machines that do much else."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


@dataclass
class WebSite(WebPort):
    """What a test has: the service, its loop, and its store."""

    store: Path
    service: PlannerService
    loop: asyncio.AbstractEventLoop


@contextmanager
def web_site(store: Path, options: WebOptions = OPTIONS) -> Iterator[WebSite]:
    """A service on a thread of its own."""
    ready: SimpleQueue[WebSite | BaseException] = SimpleQueue()
    stops: SimpleQueue[asyncio.Event] = SimpleQueue()

    async def run() -> None:
        listener = listen("127.0.0.1", 0)
        port, stop = listener.getsockname()[1], asyncio.Event()
        with held_store(store, 5.0) as (places, lock):
            async with web_serving(listener, options, places, lock, prepared=False) as (service, _):
                stops.put(stop)
                ready.put(WebSite(port, store, service, asyncio.get_running_loop()))
                await stop.wait()

    def serve() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            ready.put(error)
            raise

    thread = Thread(target=serve)
    thread.start()
    site = ready.get(timeout=60)
    if isinstance(site, BaseException):
        thread.join()
        raise site
    try:
        yield site
    finally:
        site.loop.call_soon_threadsafe(stops.get().set)
        thread.join()
