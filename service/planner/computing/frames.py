"""Messages between the server and a worker: a name and bytes, with both lengths before them."""

import asyncio
import json
import struct
from dataclasses import dataclass
from socket import socket

from helmsman.service.planner.computing.answer import WorkerAnswer

_HEAD = struct.Struct("!HQ")
MOST_BYTES = 2**31
"""The largest message: results of the largest studies are a few hundred megabytes."""


@dataclass(frozen=True, slots=True)
class WorkerFrame:
    """A message: from the server the kind and key of a task with its question, from a worker `begun`,
    `progress`, and how the task ended with its answer."""

    name: str
    content: bytes

    def pack(self) -> tuple[bytes, bytes]:
        """Return head and content as they are sent."""
        name = self.name.encode()
        return _HEAD.pack(len(name), len(self.content)) + name, self.content


def answer_frame(answer: WorkerAnswer) -> WorkerFrame:
    """Return the message that carries an answer."""
    return WorkerFrame(json.dumps([answer.status, answer.points, answer.files, answer.spent]), answer.content)


def answer_in(frame: WorkerFrame) -> WorkerAnswer:
    """Return the answer that a message carries."""
    status, points, files, spent = json.loads(frame.name)
    return WorkerAnswer(frame.content, status, points, tuple((media, digest) for media, digest in files), spent)


def send(channel: socket, frame: WorkerFrame) -> None:
    """Send a message; returns when the other end, or its buffer, has all of it. Raises OSError where that has ended."""
    for part in frame.pack():
        channel.sendall(part)


def receive(channel: socket) -> WorkerFrame:
    """Return the next message. Raises EOFError where the other end has ended."""
    name_length, length = _HEAD.unpack(_exactly(channel, _HEAD.size))
    return WorkerFrame(_exactly(channel, name_length).decode(), _exactly(channel, length))


def _exactly(channel: socket, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        piece = channel.recv(min(count - len(content), 2**20))
        if not piece:
            raise EOFError
        content += piece
    return bytes(content)


async def read(reader: asyncio.StreamReader) -> WorkerFrame:
    """Return the next message. Raises EOFError (IncompleteReadError is one) where the other end has ended, and for a
    length that no worker sends."""
    name_length, length = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if length > MOST_BYTES:
        raise EOFError
    return WorkerFrame((await reader.readexactly(name_length)).decode(), await reader.readexactly(length))
