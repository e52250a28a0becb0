"""The web page and its files."""

import re
from pathlib import Path

from fastapi import APIRouter, Request, Response

from helmsman.service.planner.page_files import KINDS
from helmsman.service.planner.routes.exchange import has_tag, service_of

router = APIRouter(include_in_schema=False)

_IMMUTABLE = re.compile(r".*[.-][0-9a-f]{8,}\.[a-z0-9]+")
"""Names with a digest: what they stand for never changes."""


@router.get("/")
async def page(request: Request) -> Response:
    """Return the page."""
    return _sent(request, "index.html")


@router.get("/assets/{name:path}")
async def asset(request: Request, name: str) -> Response:
    """Return a file of the page."""
    return _sent(request, name)


def _sent(request: Request, name: str) -> Response:
    file = service_of(request).page.get(name)
    kept = "public, max-age=31536000, immutable" if _IMMUTABLE.fullmatch(name) else "no-cache"
    compressed = bool(file.compressed) and "gzip" in request.headers.get("accept-encoding", "")
    tag = f"{file.digest}-gzip" if compressed else file.digest
    headers = {"ETag": f'"{tag}"', "Cache-Control": kept, "Vary": "Accept-Encoding"}
    if has_tag(request, tag):
        return Response(status_code=304, headers=headers)
    if compressed:
        headers["Content-Encoding"] = "gzip"
    return Response(file.compressed if compressed else file.content, 200, headers, KINDS[Path(name).suffix])
