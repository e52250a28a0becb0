"""Reads a server's `/metrics` before and after a load: its processor time, and the seconds of its passes."""

import time
from dataclasses import dataclass

from aiohttp import ClientError, ClientSession, ClientTimeout

from helmsman.service.inference.load.bounded_reads import headers_of, read_bounded
from helmsman.service.inference.load.pass_prices import PassSeconds, parse_passes, price_notes
from helmsman.service.inference.load.processors import ProcessorUse, on_this_machine, parse_use, use_notes

_TIMEOUT = ClientTimeout(total=10)
_LIMIT = 2**22
"""Bytes of `/metrics`."""


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """The counters of a server at one moment; `processors` is None and `passes` empty for servers other than Helm's."""

    processors: ProcessorUse | None
    passes: PassSeconds


async def read_counters(url: str, key: str | None = None) -> ServerCounters:
    """Ask the server at `url`."""
    try:
        async with (
            ClientSession(timeout=_TIMEOUT, auto_decompress=False, headers=headers_of(key)) as session,
            session.get(f"{url}/metrics") as answer,
        ):
            text = (await read_bounded(answer, _LIMIT)).decode("utf-8", "replace") if answer.status == 200 else ""
    except (ClientError, OSError, TimeoutError, ValueError):
        text = ""
    client = time.process_time() if on_this_machine(url) else 0.0
    return ServerCounters(parse_use(text, client), parse_passes(text))


def notes_between(before: ServerCounters, after: ServerCounters) -> dict[str, float]:
    """Return notes of a table of served requests: what others took of the processors, and what passes took beside their
    price."""
    return use_notes(before.processors, after.processors) | price_notes(before.passes, after.passes)
