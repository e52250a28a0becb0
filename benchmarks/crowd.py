"""Clients of every kind at once, for a time: who stream, stall, leave, send too much, garbage or nothing; and who mean
harm: bodies that are dear to read, conversations for a template that takes too much, pages of other sites."""

import asyncio
import json
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Kinds:
    """The number of clients of each kind.

    `streaming` and `whole` ask for an answer in pieces or at once, and read it; `stalling` ask and read nothing,
    `leaving` ask and disconnect, both within `patience_s` seconds. `large` send a body of 60 MiB, `garbage` random
    bytes, `silent` nothing or the begin of a request, `slow` announce 1 MiB and send one byte. `doubled` send 1 MiB of
    keys of which one comes twice, `deep` 1 MiB of opening brackets, `tokens` and `texts` prompts of 1 MiB. `talking`
    send conversations, which the checkpoint's chat template renders; `crossing` send what a browser lets the page of
    another site send, or another host's name."""

    streaming: int = 600
    whole: int = 50
    stalling: int = 100
    leaving: int = 100
    large: int = 50
    garbage: int = 50
    silent: int = 50
    slow: int = 0
    doubled: int = 0
    deep: int = 0
    tokens: int = 0
    texts: int = 0
    talking: int = 0
    crossing: int = 0
    patience_s: float = 6.0


@dataclass
class Tally:
    """What clients met, and how many connections were open."""

    met: Counter[str] = field(default_factory=Counter)
    open_most: int = 0
    open_now: int = 0


class Crowd:
    """Clients of one server, each asking once at least, and again and again until `until`, a moment of the loop's
    clock."""

    def __init__(self, port: int, until: float, seed: int, kinds: Kinds) -> None:
        self._port, self._until, self._random, self._kinds = port, until, random.Random(seed), kinds
        self.tally = Tally()

    async def hold(self) -> Tally:
        """All of them at once."""
        kinds = self._kinds
        ways = ((kinds.streaming, self._stream), (kinds.whole, self._whole), (kinds.stalling, self._stall),
                (kinds.leaving, self._leave), (kinds.large, self._large), (kinds.garbage, self._garbage),
                (kinds.silent, self._silent), (kinds.slow, self._slow), (kinds.doubled, self._doubled),
                (kinds.deep, self._deep), (kinds.tokens, self._tokens), (kinds.texts, self._texts),
                (kinds.talking, self._talk), (kinds.crossing, self._cross))  # fmt: skip
        clients = [self._again(way) for count, way in ways for _ in range(count)]
        await asyncio.gather(*clients)
        return self.tally

    async def _again(self, way: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[str]]) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._random.random() * min(1.0, self._until - loop.time()))
        while True:
            try:
                await self._once(way)
            except OSError as error:
                self.tally.met[f"{way.__name__[1:]}: {type(error).__name__}"] += 1
            if loop.time() >= self._until:
                return
            await asyncio.sleep(self._random.uniform(0.05, 0.2))

    async def _once(self, way: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[str]]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**12)
        self.tally.open_now += 1
        self.tally.open_most = max(self.tally.open_most, self.tally.open_now)
        try:
            self.tally.met[f"{way.__name__[1:]}: {await way(reader, writer)}"] += 1
        finally:
            self.tally.open_now -= 1
            writer.transport.abort()

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(self._asking(self._random.randint(20, 200)))
        return await _status(reader)

    async def _whole(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(self._asking(self._random.randint(20, 100), stream=False))
        return await _status(reader)

    async def _stall(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.transport.pause_reading()
        writer.write(self._asking(4000))
        await asyncio.sleep(self._patience())
        return "left"

    async def _leave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(self._asking(2000))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience()):
                await _status(reader)
        return "left"

    async def _large(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(_head(60 * 2**20))
        with suppress(ConnectionError):
            for _ in range(16):
                writer.write(b" " * 2**16)
                await writer.drain()
        return await _status(reader)

    async def _garbage(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        noise = self._random.randbytes(self._random.randint(1, 3000))
        writer.write(self._random.choice([noise + b"\r\n\r\n", _head(len(noise)) + noise, _head(2) + b"[]"]))
        return await _status(reader)

    async def _silent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(self._random.choice([b"", b"POST /v1/comp", _head(100) + b"{"]))
        return await _status(reader)

    async def _slow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(_head(_MIB) + b"{")
        return await _status(reader)

    async def _doubled(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        return await _sent(reader, writer, _DOUBLED)

    async def _deep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        return await _sent(reader, writer, b"[" * _MIB)

    async def _tokens(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        return await _sent(reader, writer, b'{"prompt": [%s1]}' % (b"1," * (_MIB // 2 - 16)))

    async def _texts(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        return await _sent(reader, writer, b'{"prompt": "%s"}' % (b"a b\\n" * ((_MIB - 32) // 5)))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        body = b'{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}'
        return await _sent(reader, writer, body, b"/v1/chat/completions")

    async def _cross(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        other = self._random.choice(
            [b"Host: other.example\r\n", b"Host: localhost\r\nOrigin: http://other.example\r\n"]
        )
        body = b'{"prompt": [1], "max_tokens": 100}'
        head = b"POST /v1/completions HTTP/1.1\r\n" + other + b"Content-Type: text/plain\r\n"
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return await _status(reader)

    def _patience(self) -> float:
        return self._random.uniform(0.01, self._kinds.patience_s)

    def _asking(self, tokens: int, stream: bool = True) -> bytes:
        prompt = [self._random.randrange(256) for _ in range(self._random.randint(1, 200))]
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "stream": stream, "ignore_eos": True,
                           "return_token_ids": True}).encode()  # fmt: skip
        return _head(len(body)) + body


_MIB = 2**20
_DOUBLED = b'{"prompt": [1], %s "prompt": [1]}' % b"".join(b'"%x": 0,' % key for key in range(95_000))
"""Just under 1 MiB of keys, one of them twice."""


async def _sent(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes, path: bytes = b"/v1/completions"
) -> str:
    """The status that answers a body, which may come before all of it was sent."""
    writer.write(_head(len(body), path))
    with suppress(ConnectionError):
        for start in range(0, len(body), 2**16):
            writer.write(body[start : start + 2**16])
            await writer.drain()
    return await _status(reader)


def _head(length: int, path: bytes = b"/v1/completions") -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path
    return head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % length


async def _status(reader: asyncio.StreamReader) -> str:
    """The status of an answer, once all of it has come."""
    words, last = (await reader.readline()).split(), b""
    while piece := await reader.read(2**16):
        last = piece
    whole = not last.startswith(b"data") or last.endswith(b"0\r\n\r\n")
    return "closed" if len(words) < 2 else words[1].decode() if whole else "broken off"
