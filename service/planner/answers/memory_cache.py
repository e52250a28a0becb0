"""Answers in memory, bounded in bytes: the least recently used goes first."""

from collections import OrderedDict

from helmsman.service.planner.computing.answer import WorkerAnswer

_OVERHEAD = 512
"""Bytes that an entry takes beside its content."""


class MemoryCache:
    """Answers by key. `hits` and `misses` count what was asked for."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._answers: OrderedDict[str, WorkerAnswer] = OrderedDict()
        self.size, self.hits, self.misses = 0, 0, 0

    def get(self, key: str) -> WorkerAnswer | None:
        """Return the answer of a key, if it is here."""
        answer = self._answers.get(key)
        if answer is None:
            self.misses += 1
            return None
        self.hits += 1
        self._answers.move_to_end(key)
        return answer

    def put(self, key: str, answer: WorkerAnswer) -> None:
        """Keep an answer, unless it alone is larger than a quarter of all."""
        size = len(answer.content) + _OVERHEAD
        if size > self._most_bytes // 4:
            return
        self._drop(key)
        self._answers[key] = answer
        self.size += size
        while self.size > self._most_bytes:
            self._drop(next(iter(self._answers)))

    def _drop(self, key: str) -> None:
        answer = self._answers.pop(key, None)
        if answer is not None:
            self.size -= len(answer.content) + _OVERHEAD
