"""Answers on the disk, so that they outlive the server: a table that may be lost, bounded in bytes."""

import logging
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from helmsman.service.planner.computing.answer import WorkerAnswer

_log = logging.getLogger("helmsman.planner")

_TABLE = "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, status INTEGER, content BLOB, used INTEGER) STRICT"
_LEVEL = 1
"""Of compression: a plan becomes a fifth of its size in less than a millisecond."""
_PURGED = 0.9
"""The share of the bytes that are left when the table is full and the answers used longest ago go."""


class AnswerTable:
    """Answers by key, all of which `known` has, so that nobody waits for what is not here. Used by one thread. Whatever
    is wrong with the table, the service only computes again."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        try:
            self._connection = _opened(path)
        except sqlite3.DatabaseError as error:
            _log.warning("the table of answers is damaged, and made anew: %s", error)
            for ending in ("", "-wal", "-shm"):
                with suppress(OSError):
                    path.with_name(path.name + ending).unlink(missing_ok=True)
            self._connection = _opened(path)
        self.known = {key for (key,) in self._connection.execute("SELECT key FROM answers")}
        self._uses = int(self._one("SELECT COALESCE(MAX(used), 0) FROM answers"))
        self._size = int(self._one("SELECT COALESCE(SUM(LENGTH(content)), 0) FROM answers"))

    def get(self, key: str) -> WorkerAnswer | None:
        """Return an answer, if it is here and whole."""
        with suppress(sqlite3.DatabaseError, zlib.error):
            row = self._connection.execute("SELECT status, content FROM answers WHERE key = ?", (key,)).fetchone()
            if row is not None:
                self._uses += 1
                self._connection.execute("UPDATE answers SET used = ? WHERE key = ?", (self._uses, key))
                return WorkerAnswer(zlib.decompress(row[1]), row[0])
        return None

    def put(self, answers: Sequence[tuple[str, WorkerAnswer]]) -> None:
        """Keep answers, in one transaction; those used longest ago go where there is no room."""
        rows = []
        for key, answer in answers:
            self._uses += 1
            rows.append((key, answer.status, zlib.compress(answer.content, _LEVEL), self._uses))
        with suppress(sqlite3.DatabaseError), self._connection:
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)
            self._size += sum(len(row[2]) for row in rows)
            self.known.update(row[0] for row in rows)
            if self._size > self._most_bytes:
                self._purge()

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def _purge(self) -> None:
        self._size = int(self._one("SELECT COALESCE(SUM(LENGTH(content)), 0) FROM answers"))
        sums = "SELECT key, SUM(LENGTH(content)) OVER (ORDER BY used DESC) AS sum FROM answers"
        most = int(_PURGED * self._most_bytes)
        forget = f"DELETE FROM answers WHERE key IN (SELECT key FROM ({sums}) WHERE sum > ?) RETURNING key"
        self.known.difference_update(key for (key,) in self._connection.execute(forget, (most,)).fetchall())
        self._size = int(self._one("SELECT COALESCE(SUM(LENGTH(content)), 0) FROM answers"))

    def _one(self, query: str) -> int:
        return int(self._connection.execute(query).fetchone()[0])


def _opened(path: Path) -> sqlite3.Connection:
    """Return a connection to the table, made where there is none. Raises sqlite3.DatabaseError for a damaged file."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("quick_check")
        connection.execute(_TABLE)
        connection.execute("SELECT key, status, content, used FROM answers LIMIT 1")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection
