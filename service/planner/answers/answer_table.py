"""Answers on the disk, so that they outlive the server: a table that may be lost, bounded in bytes and rows."""

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
"""The share of the bytes and rows that are left when the table is full and the answers used longest ago go."""
_OVERHEAD = 400
"""Bytes that a row takes beside its content: its key here, in the table, and in the index."""
_MOST_ROWS = 200_000
"""Rows at most: the keys of all are in memory."""
_BUSY_S = 5.0
_BYTES = f"LENGTH(content) + {_OVERHEAD}"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Codes of SQLite for a file that is no table any more; with others it may be whole, and only not be opened now."""


class AnswerTable:
    """Answers by key, all of which `known` has, so that nobody waits for what is not here. Used by one thread. Whatever
    is wrong with the table, the service only computes again."""

    def __init__(self, path: Path, most_bytes: int, most_rows: int = _MOST_ROWS, busy_s: float = _BUSY_S) -> None:
        """Open the table, make it, or make it anew where it is damaged; where none can be opened, go on without.
        `busy_s`: seconds for which somebody else may have it."""
        self._most_bytes, self._most_rows, self._busy_s = most_bytes, most_rows, busy_s
        self._size, self._uses = 0, 0
        self.known: set[str] = set()
        self._connection: sqlite3.Connection | None = None
        try:
            self._open(path)
        except (sqlite3.Error, OSError) as error:
            _log.warning("answers are not kept on the disk, since their table cannot be opened: %s", error)
            self.close()

    def get(self, key: str) -> WorkerAnswer | None:
        """Return an answer, if it is here and whole."""
        if self._connection is None:
            return None
        with suppress(sqlite3.DatabaseError, zlib.error):
            row = self._connection.execute("SELECT status, content FROM answers WHERE key = ?", (key,)).fetchone()
            if row is not None:
                self._uses += 1
                self._connection.execute("UPDATE answers SET used = ? WHERE key = ?", (self._uses, key))
                return WorkerAnswer(zlib.decompress(row[1]), row[0])
        return None

    def put(self, answers: Sequence[tuple[str, WorkerAnswer]]) -> None:
        """Keep answers, in one transaction; those used longest ago go where there is no room."""
        if self._connection is None:
            return
        rows = []
        for key, answer in answers:
            self._uses += 1
            rows.append((key, answer.status, zlib.compress(answer.content, _LEVEL), self._uses))
        with suppress(sqlite3.DatabaseError), self._connection:
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)
            self._size += sum(len(row[2]) + _OVERHEAD for row in rows)
            self.known.update(row[0] for row in rows)
            if self._size > self._most_bytes or len(self.known) > self._most_rows:
                self._purge(self._connection)

    def close(self) -> None:
        """Close it: from now on it is empty."""
        self.known.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, path: Path) -> None:
        try:
            self._read(path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            _log.warning("the table of answers is damaged, and made anew: %s", error)
            self.close()
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)
            self._read(path)

    def _read(self, path: Path) -> None:
        """Open the table, and read which answers it has. Raises sqlite3.DatabaseError."""
        self._connection = connection = _opened(path, self._busy_s)
        self.known = {key for (key,) in connection.execute("SELECT key FROM answers")}
        self._uses = _one(connection, "SELECT COALESCE(MAX(used), 0) FROM answers")
        self._size = _size(connection)

    def _purge(self, connection: sqlite3.Connection) -> None:
        sums = (
            f"SELECT key, SUM({_BYTES}) OVER w AS sum, ROW_NUMBER() OVER w AS place FROM answers "
            "WINDOW w AS (ORDER BY used DESC)"
        )
        most = (int(_PURGED * self._most_bytes), int(_PURGED * self._most_rows))
        forget = f"DELETE FROM answers WHERE key IN (SELECT key FROM ({sums}) WHERE sum > ? OR place > ?) RETURNING key"
        self.known.difference_update(key for (key,) in connection.execute(forget, most).fetchall())
        self._size = _size(connection)


def _opened(path: Path, busy_s: float) -> sqlite3.Connection:
    """Return a connection to the table, made where there is none, for nobody else to read. Raises
    sqlite3.DatabaseError."""
    with suppress(OSError):
        path.touch(0o600, exist_ok=False)
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
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


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether an error says that the file is no table; one without a code is that of our own check."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _DAMAGED


def _size(connection: sqlite3.Connection) -> int:
    return _one(connection, f"SELECT COALESCE(SUM({_BYTES}), 0) FROM answers")


def _one(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
