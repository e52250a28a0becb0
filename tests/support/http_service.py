"""A service on a port of its own before a virtual engine, and how tests talk with it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any

from aiohttp import ClientSession
from benchmarks.virtual_engine import VirtualEngine
from shapes import small_model
from tokenizers import Tokenizer

from helmsman.executor.checkpoint.tokenizer import tokenizer_json
from helmsman.executor.text.chat_template import ChatTemplate
from helmsman.executor.text.template_process import Renderer
from helmsman.executor.text.tokenizer import Text
from helmsman.service.http.listening import address, listen
from helmsman.service.inference.admission import Bounds
from helmsman.service.inference.jobs import ServedModel
from helmsman.service.inference.server import serving
from helmsman.service.inference.service import Options, Service

MODEL = small_model("llama").model_copy(update={"eos": (300,), "vocab": 320})
OPTIONS = Options(Bounds(requests=64, tokens=2**20), grace_s=5.0, canary_s=0.01)


@cache
def byte_text() -> Text:
    """A tokenizer of bytes."""
    return Text(Tokenizer.from_str(tokenizer_json(MODEL)))


def served(**changes: Any) -> ServedModel:
    """What is served by default; whoever has it closes its template."""
    source = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}"
    template = Renderer(ChatTemplate(source, {}, "here", own=True))
    return replace(ServedModel("tiny", MODEL.vocab, MODEL.eos, byte_text(), template), **changes)


@dataclass
class Site:
    """What a test has: the service, its engine, its address, a client."""

    service: Service
    engine: VirtualEngine
    url: str
    client: ClientSession

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any, Any]:
        """(status, JSON, headers)."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        said = {"Content-Type": "application/json"} | headers
        async with self.client.post(self.url + path, data=data, headers=said) as answer:
            return answer.status, await answer.json(), answer.headers

    async def complete(self, **asked: Any) -> tuple[int, Any, Any]:
        return await self.post("/v1/completions", asked)

    async def events(self, path: str, **asked: Any) -> list[Any]:
        """The chunks of a stream."""
        async with self.client.post(self.url + path, json={**asked, "stream": True}) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            text = await answer.text()
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]

    async def get(self, path: str) -> tuple[int, str]:
        async with self.client.get(self.url + path) as answer:
            return answer.status, await answer.text()

    async def until(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.002)


@asynccontextmanager
async def site(engine: VirtualEngine, options: Options = OPTIONS, **changes: Any) -> AsyncIterator[Site]:
    listener = listen("127.0.0.1", 0)
    url, offered = address(listener), served(**changes)
    try:
        async with serving(listener, engine, offered, options) as service, ClientSession() as client:
            yield Site(service, engine, url, client)
    finally:
        engine.close()
        if offered.template is not None:
            offered.template.close()


def on_site(test: Callable[[Site], Awaitable[None]], engine: VirtualEngine | None = None, **more: Any) -> None:
    """Run a test against a service of its own."""

    async def run() -> None:
        async with site(engine or VirtualEngine(), **more) as found:
            await test(found)

    asyncio.run(run())


@contextmanager
def background(engine: VirtualEngine, **changes: Any) -> Iterator[str]:
    """A service on a thread of its own, for what is no coroutine; its URL."""
    urls: SimpleQueue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()

    async def run() -> None:
        async with site(engine, **changes) as found:
            stop = asyncio.Event()
            urls.put((found.url, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = Thread(target=lambda: asyncio.run(run()))
    thread.start()
    url, loop, stop = urls.get(timeout=60)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
