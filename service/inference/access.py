"""The rules of access as aiohttp applies them: a middleware before handlers, and a signal before headers are sent."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web

from helmsman.service.http.access import Access, check_type, page_headers, preflight_headers

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_METHODS = "GET, POST"


def access_middleware(access: Access) -> Any:
    """Return the middleware that lets requests in, or refuses them before their bodies are read."""

    @web.middleware
    async def admit(request: web.Request, handler: _Handler) -> web.StreamResponse:
        page = request.headers.get(hdrs.ORIGIN)
        access.check(request.path, request.headers.get(hdrs.HOST, ""), page)
        if request.method == hdrs.METH_OPTIONS and page is not None:
            named = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
            return web.Response(status=204, headers=preflight_headers(_METHODS, named))
        access.check_key(request.path, request.headers.get(hdrs.AUTHORIZATION, ""))
        check_type(request.method, request.content_type)
        return await handler(request)

    return admit


def page_signal(access: Access) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return what lets the browser show an answer to the page that asked, if it may ask."""

    async def tell_page(request: web.Request, response: web.StreamResponse) -> None:
        page = request.headers.get(hdrs.ORIGIN)
        if page is not None and access.may_ask(page, request.headers.get(hdrs.HOST, "")):
            response.headers.update(page_headers(page))

    return tell_page
