"""The description of the service in OpenAPI's terms."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from helmsman.service.planner.routes.exchange import tagged

router = APIRouter(include_in_schema=False)


class Description:
    """The description as it is sent: made once, by another thread, since it takes a second."""

    def __init__(self, describe: Callable[[], dict[str, Any]]) -> None:
        self._describe = describe
        self._making: asyncio.Task[tuple[bytes, str]] | None = None

    async def content(self) -> tuple[bytes, str]:
        """Return the description, and what it is known by."""
        if self._making is None:
            self._making = asyncio.create_task(asyncio.to_thread(self._made))
        return await asyncio.shield(self._making)

    def _made(self) -> tuple[bytes, str]:
        content = json.dumps(self._describe(), separators=(",", ":")).encode()
        return content, hashlib.sha256(content).hexdigest()


@router.get("/openapi.json")
async def describe(request: Request) -> Response:
    """Return the description."""
    return tagged(request, *await request.app.state.description.content())
