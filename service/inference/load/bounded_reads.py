"""How servers that nobody knows are asked: with a key where they want one, their answers read no further than what is
of use."""

from aiohttp import ClientError, ClientResponse


class EndlessError(ClientError):
    """An answer that is longer than any that is of use."""


async def read_bounded(response: ClientResponse, limit: int) -> bytes:
    """Return the body of `response`. Raises EndlessError where it has more than `limit` bytes."""
    body = bytearray()
    while data := await response.content.readany():
        body += data
        if len(body) > limit:
            raise EndlessError(f"an answer of more than {limit} bytes")
    return bytes(body)


async def text_of(response: ClientResponse, limit: int) -> str:
    """Return the first `limit` bytes of a body as text, whatever its encoding says."""
    body = bytearray()
    while len(body) < limit and (data := await response.content.readany()):
        body += data
    return bytes(body[:limit]).decode("utf-8", "replace")


def headers_of(key: str | None) -> dict[str, str]:
    """Return the headers of a request: a key, where there is one, and that answers come as they are."""
    plain = {"Accept-Encoding": "identity"}
    return plain if key is None else plain | {"Authorization": f"Bearer {key}"}
