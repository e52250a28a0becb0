"""Which server is asked: what it says of itself before the load begins."""

import json
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from helmsman.schemas.errors import HardwareUnavailableError, UsageError
from helmsman.service.inference.load.bounded_reads import headers_of, read_bounded

_TIMEOUT = ClientTimeout(total=30)
_LIMIT = 2**20
"""Bytes of the list of models."""


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """Of `GET /v1/models`: the first model's name; what only Helm says, its plan and policy; None where nothing is."""

    model: str | None = None
    policy: str | None = None
    plan_sha256: str | None = None


async def describe(url: str, key: str | None = None) -> ServerDescription:
    """Describe the server at `url`. Raises UsageError for what is no URL, HardwareUnavailableError where nothing
    answers."""
    try:
        async with (
            ClientSession(timeout=_TIMEOUT, auto_decompress=False, headers=headers_of(key)) as session,
            session.get(f"{url}/v1/models") as answer,
        ):
            return _described(await read_bounded(answer, _LIMIT)) if answer.status == 200 else ServerDescription()
    except ValueError as error:
        raise UsageError(f"not a URL: {error}", field="url", value=url, remedy="write http://127.0.0.1:8000") from None
    except (ClientError, OSError) as error:
        remedy = "start helm-serve, or another server with OpenAI's interface, and wait until it listens"
        raise HardwareUnavailableError(f"no server answers: {error}", field="url", value=url, remedy=remedy) from None


def _described(body: bytes) -> ServerDescription:
    try:
        first = json.loads(body)["data"][0]
        return ServerDescription(_text(first, "id"), _text(first, "policy"), _text(first, "plan_sha256"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ServerDescription()


def _text(model: dict[str, Any], key: str) -> str | None:
    value = model.get(key)
    return value if isinstance(value, str) else None
