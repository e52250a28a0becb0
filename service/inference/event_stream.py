"""A stream of server-sent events, to a reader who may be slow or gone."""

import asyncio

from aiohttp import web

from helmsman.service.http.refusals import RefusedError, StalledError
from helmsman.service.inference.answers import RequestAnswer
from helmsman.service.inference.running_request import RunningRequest

_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def stream(
    request: web.Request, answer: RequestAnswer, run: RunningRequest, stall_s: float
) -> web.StreamResponse:
    """Answer with chunks as tokens arrive.

    Nothing is sent before the first, so that what fails until then is refused with a status of its own; what fails
    later ends the stream with an error. Raises RefusedError for the former and for readers that stall."""
    pieces = run.pieces()
    first = await anext(pieces)
    response = web.StreamResponse(headers=_HEADERS)
    try:
        await response.prepare(request)
        await _write(request, response, answer.chunk(first, run.usage, first=True), stall_s)
        async for piece in pieces:
            await _write(request, response, answer.chunk(piece, run.usage, first=False), stall_s)
    except StalledError:
        raise
    except ConnectionError:
        return response  # who asked has left between two pieces
    except RefusedError as problem:
        await _write(request, response, answer.failing(problem), stall_s)
    else:
        await _write(request, response, answer.closing(run.usage), stall_s)
    return response


async def _write(request: web.Request, response: web.StreamResponse, data: bytes, stall_s: float) -> None:
    """Write. Only where earlier writes are still here may it wait, and so need a timer."""
    transport = request.transport
    if transport is None or not transport.get_write_buffer_size():
        await response.write(data)
        return
    try:
        async with asyncio.timeout(stall_s):
            await response.write(data)
    except TimeoutError:
        transport.abort()  # what is buffered is not read either
        raise StalledError from None
