"""The cache of answers, in memory and behind that on the disk, by the digest of the question."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from helmsman.service.planner.answers.answer_table import AnswerTable
from helmsman.service.planner.answers.memory_cache import MemoryCache
from helmsman.service.planner.computing.answer import WorkerAnswer

_KEPT = (200, 400, 422)
"""Statuses of answers that the question alone decides."""
_WRITTEN = ("plan", "comparison")
"""Kinds of questions whose answers go to the disk: each costs its client points. Others are made again in no time, cost
nothing, so that they could fill the disk, and some depend on the limits that this server was started with."""
_GATHERED_S = 0.5
"""Seconds for which answers are gathered before they are written."""
_MOST_PENDING = 256
"""Answers that may wait to be written; while more come than the disk takes, the rest stay in memory only."""


class AnswerCache:
    """Answers by key. Used in one event loop."""

    def __init__(self, memory: MemoryCache, table: AnswerTable) -> None:
        self.memory, self._table = memory, table
        self._thread = ThreadPoolExecutor(1, "answers")
        self._pending: list[tuple[str, WorkerAnswer]] = []
        self._closing = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None

    async def get(self, key: str) -> WorkerAnswer | None:
        """Return an answer, if it is known."""
        answer = self.memory.get(key)
        if answer is None and key in self._table.known:
            answer = await asyncio.get_running_loop().run_in_executor(self._thread, self._table.get, key)
            if answer is not None:
                self.memory.put(key, answer)
        return answer

    def keep(self, key: str, kind: str, answer: WorkerAnswer) -> None:
        """Keep the answer to a question of a kind, if it would be the same another time."""
        if answer.status not in _KEPT or answer.files:
            return
        self.memory.put(key, answer)
        if kind not in _WRITTEN:
            return
        if len(self._pending) < _MOST_PENDING:
            self._pending.append((key, answer))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write_later())

    async def close(self) -> None:
        """Write what waits to be, and close the table."""
        if self._writing is not None:
            self._closing.set()
            await asyncio.gather(self._writing, return_exceptions=True)
        self._thread.shutdown()
        self._table.close()

    async def _write_later(self) -> None:
        """Write what waits, all that comes within a moment at once."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), _GATHERED_S)
        while self._pending:
            answers, self._pending = self._pending, []
            await asyncio.get_running_loop().run_in_executor(self._thread, self._table.put, answers)
