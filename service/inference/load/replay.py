"""Requests in time: each is sent when it arrives, whatever became of those before it (an open loop)."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from aiohttp import ClientSession, ClientTimeout, TCPConnector

from helmsman.service.inference.load.bounded_reads import headers_of
from helmsman.service.inference.load.client import SILENCE_S, RequestRecord, observe
from helmsman.service.inference.load.request_form import RequestForm

_LEAD_S = 0.05
"""The first arrival lies so far ahead that everything is ready for it."""


@dataclass(frozen=True)
class ReplayResult:
    """The records of all requests, by row; `start`: the moment of second 0 of the requests' times."""

    start: float
    observed: tuple[RequestRecord, ...]


async def replay(
    url: str,
    form: RequestForm,
    concurrency: int | None = None,
    on_end: Callable[[RequestRecord], None] = lambda _: None,
    key: str | None = None,
) -> ReplayResult:
    """Send all requests, with a `key` where there is one, and wait for all answers. With a `concurrency`, who finds so
    many under way waits for one to end, and its latency counts from its arrival all the same."""
    loop, arrivals = asyncio.get_running_loop(), form.requests.arrival_s.tolist()
    leaves = form.requests.cancel_s.tolist()
    session = ClientSession(
        connector=TCPConnector(limit=0, force_close=False),
        timeout=ClientTimeout(total=None, sock_connect=60, sock_read=SILENCE_S),
        auto_decompress=False,
        headers=headers_of(key),
    )
    gate = asyncio.Semaphore(concurrency) if concurrency else None
    start = loop.time() + _LEAD_S

    async def one(row: int) -> RequestRecord:
        async with AsyncExitStack() as stack:
            if gate is not None:
                await stack.enter_async_context(gate)
            leave = start + leaves[row] if leaves[row] != float("inf") else None
            result = await observe(session, url + form.target, form.body(row), row, leave)
        on_end(result)
        return result

    async with session, asyncio.TaskGroup() as group:
        tasks = []
        for row, arrival in enumerate(arrivals):
            await asyncio.sleep(max(0.0, start + arrival - loop.time()))
            tasks.append(group.create_task(one(row)))
    return ReplayResult(start, tuple(task.result() for task in tasks))
