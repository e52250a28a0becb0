"""Jobs in a SQLite database with a write-ahead log: every change of state is one transaction, on the disk when it
returns.

A job is queued, then running, perhaps queued again and running, then done, failed or cancelled; what has ended stays as
it is, so that nothing is completed twice."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helmsman.schemas.errors import BadInputError, HelmError
from helmsman.schemas.job import JobKind, JobState
from helmsman.service.planner.problems import UnwritableStoreError

VERSION = 1
"""Of the tables."""
_BUSY_S = 5.0
_TABLES = """
CREATE TABLE jobs (
  id TEXT PRIMARY KEY, client TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, question BLOB NOT NULL,
  points INTEGER NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
  completions INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL, started REAL, ended REAL, error TEXT,
  results TEXT NOT NULL DEFAULT '{}', bytes INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX jobs_by_client ON jobs (client, created);
CREATE INDEX jobs_by_state ON jobs (state, created);
CREATE INDEX jobs_by_key ON jobs (key, state);
"""
_NAMES = (
    *("id", "client", "kind", "key", "points", "state", "attempts"),
    *("created", "started", "ended", "error", "results", "bytes"),
)
_COLUMNS = ", ".join(_NAMES)
_HAS_ENDED = "state NOT IN ('queued', 'running')"
_NO_QUESTION = "question = x''"
"""A job that has ended is never asked again: its question, which may be large, goes."""


class DamagedStoreError(BadInputError):
    """Raised where what is kept of jobs cannot be read."""

    code = "damaged-store"


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it is kept. `results`: digests of files by media type, `bytes` together; `error`: a problem as JSON."""

    id: str
    client: str
    kind: JobKind
    key: str
    points: int
    state: JobState
    attempts: int
    created: float
    started: float | None
    ended: float | None
    error: str | None
    results: dict[str, str]
    bytes: int = 0


class JobDatabase:
    """The jobs of one store. Used by one thread, whichever opened it."""

    def __init__(self, path: Path) -> None:
        """Open the database, or make it. Raises BadInputError for one that is damaged or of a later version,
        UnwritableStoreError on a full disk."""
        self._path = path
        _make_private(path)
        with self._told():
            self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with self._told():
                self._prepare()
        except HelmError:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close it; its log is then part of it."""
        self._connection.close()

    def add(self, row: JobRow, question: bytes) -> None:
        """Add a job, queued or done."""
        values = (*_values(row), question, int(row.state == "done"))
        marks = ", ".join("?" * len(values))
        self._change(f"INSERT INTO jobs ({_COLUMNS}, question, completions) VALUES ({marks})", values)

    def recover(self) -> list[str]:
        """Queue what was running when a server ended, and return the ids of all that is queued, the oldest first."""
        self._change(f"UPDATE jobs SET {_NO_QUESTION} WHERE {_HAS_ENDED} AND LENGTH(question) > 0")
        self._change("UPDATE jobs SET state = 'queued', started = NULL WHERE state = 'running'")
        return [str(row[0]) for row in self._rows("SELECT id FROM jobs WHERE state = 'queued' ORDER BY created, id")]

    def run(self, job: str, attempts: int, now: float) -> bool:
        """Let a job that has not ended run, for the attempt of that number; returns whether it had not."""
        changed = "UPDATE jobs SET state = 'running', attempts = ?, started = ? WHERE id = ?"
        return self._change(f"{changed} AND NOT {_HAS_ENDED}", (attempts, now, job)) == 1

    def queue(self, job: str, attempts: int) -> bool:
        """Let a job that has not ended wait, after so many attempts; returns whether it had not."""
        changed = "UPDATE jobs SET state = 'queued', attempts = ?, started = NULL WHERE id = ?"
        return self._change(f"{changed} AND NOT {_HAS_ENDED}", (attempts, job)) == 1

    def complete(self, job: str, results: dict[str, str], size: int, now: float) -> bool:
        """Let a running job be done; returns whether it was running."""
        changed = "state = 'done', completions = completions + 1, results = ?, bytes = ?, ended = ?"
        values = (json.dumps(results), size, now, job)
        change = f"UPDATE jobs SET {changed}, {_NO_QUESTION} WHERE id = ? AND state = 'running'"
        return self._change(change, values) == 1

    def fail(self, job: str, error: str, now: float) -> bool:
        """Let a job that has not ended have failed."""
        changed = f"UPDATE jobs SET state = 'failed', error = ?, bytes = ?, ended = ?, {_NO_QUESTION} WHERE id = ?"
        return self._change(f"{changed} AND NOT {_HAS_ENDED}", (error, len(error), now, job)) == 1

    def cancel(self, job: str, now: float) -> bool:
        """Let a job that has not ended be cancelled."""
        changed = f"UPDATE jobs SET state = 'cancelled', ended = ?, {_NO_QUESTION} WHERE id = ?"
        return self._change(f"{changed} AND NOT {_HAS_ENDED}", (now, job)) == 1

    def remove(self, job: str) -> None:
        """Forget a job."""
        self._change("DELETE FROM jobs WHERE id = ?", (job,))

    def job(self, job: str) -> JobRow | None:
        """Return a job, if it is known."""
        return next(self._jobs("WHERE id = ?", job), None)

    def question(self, key: str) -> bytes:
        """Return the question of a key that a job has which has not ended. Raises DamagedStoreError where none has."""
        rows = self._rows(f"SELECT question FROM jobs WHERE key = ? AND NOT {_HAS_ENDED} LIMIT 1", key)
        if not rows:
            raise self._damaged("the question of a job is not there")
        return bytes(rows[0][0])

    def of(self, client: str, most: int) -> list[JobRow]:
        """Return the jobs of a client, the newest first."""
        return list(self._jobs("WHERE client = ? ORDER BY created DESC, id LIMIT ?", client, most))

    def answered(self, key: str) -> JobRow | None:
        """Return a job that has answered the question of a key."""
        return next(self._jobs("WHERE key = ? AND state = 'done' ORDER BY ended DESC LIMIT 1", key), None)

    def unfinished(self) -> dict[str, str]:
        """Return, by id, the keys of jobs that have not ended."""
        return dict(self._rows("SELECT id, key FROM jobs WHERE state IN ('queued', 'running')"))

    def referenced(self) -> set[str]:
        """Return the digests of all files that jobs have as results."""
        texts = self._rows("SELECT DISTINCT results FROM jobs WHERE state = 'done'")
        return {digest for (text,) in texts for digest in self._digests(text).values()}

    def expire(self, before: float, most_jobs: int, most_bytes: int) -> set[str]:
        """Forget jobs that ended before a moment, and the oldest ones beyond a number of jobs or of bytes of results;
        returns the digests that nobody needs any more. Results that several jobs have count once, for the newest."""
        ended = (
            "SELECT id, ended, bytes, ROW_NUMBER() OVER (PARTITION BY CASE results WHEN '{}' THEN id ELSE results END "
            f"ORDER BY ended DESC, id) AS holder FROM jobs WHERE {_HAS_ENDED}"
        )
        newest = (
            "SELECT id, ROW_NUMBER() OVER w AS place, SUM(CASE holder WHEN 1 THEN bytes ELSE 0 END) OVER w AS sum "
            f"FROM ({ended}) WINDOW w AS (ORDER BY ended DESC, id)"
        )
        beyond = f"SELECT id FROM ({newest}) WHERE place > ? OR sum > ?"
        forget = f"DELETE FROM jobs WHERE {_HAS_ENDED} AND (ended < ? OR id IN ({beyond})) RETURNING results"
        forgotten = self._rows(forget, before, most_jobs, most_bytes)
        return {digest for (text,) in forgotten for digest in self._digests(text).values()} - self.referenced()

    def _prepare(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            problem, remedy = "was written by a later version of Helm", "use that version, or give another --store"
            raise BadInputError(problem, file=str(self._path), value=version, remedy=remedy)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        faults = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if faults != "ok":
            raise self._damaged(str(faults))
        if version == 0:
            self._connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        self._connection.execute(f"SELECT {_COLUMNS}, question, completions FROM jobs LIMIT 1")

    def _jobs(self, where: str, *values: Any) -> Iterator[JobRow]:
        for row in self._rows(f"SELECT {_COLUMNS} FROM jobs {where}", *values):
            columns = dict(zip(_NAMES, row, strict=True))
            yield JobRow(**{**columns, "results": self._digests(columns["results"])})

    def _digests(self, text: str) -> dict[str, str]:
        """Return the digests of a job by media type. Raises DamagedStoreError where the text is something else."""
        try:
            digests = json.loads(text)
        except ValueError:
            digests = None
        if not isinstance(digests, dict) or not all(isinstance(digest, str) for digest in digests.values()):
            raise self._damaged("the results of a job cannot be read")
        return digests

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._told(), closing(self._connection.execute(query, values)) as cursor:
            return cursor.fetchall()

    def _change(self, statement: str, values: tuple[Any, ...] = ()) -> int:
        """Change rows in a transaction, and return their number."""
        with self._told(), closing(self._connection.execute(statement, values)) as cursor:
            return cursor.rowcount

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise what SQLite says as the error that it is to people."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                remedy = "free some space, or let the service write its store"
                raise UnwritableStoreError(f"the store cannot be written: {error}", remedy=remedy) from None
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
                raise self._damaged(str(error)) from None
            raise UnwritableStoreError(f"the store does not answer: {error}", remedy="come again") from None

    def _damaged(self, what: str) -> DamagedStoreError:
        remedy = "move it away, or give another --store; sqlite3's .recover may save what is in it"
        return DamagedStoreError(f"the store is damaged: {what}", file=str(self._path), remedy=remedy)


def requeue(path: Path, key: str) -> None:
    """Queue the jobs of a key that run, in the database at `path`, by the process that was at them: their server has
    ended before it, and this attempt counts for none. It counts where that cannot be written."""
    change = "UPDATE jobs SET state = 'queued', attempts = attempts - 1, started = NULL WHERE key = ?"
    place = f"{path.absolute().as_uri()}?mode=rw"
    with suppress(sqlite3.Error), closing(sqlite3.connect(place, _BUSY_S, isolation_level=None, uri=True)) as database:
        database.execute(f"{change} AND state = 'running'", (key,))


def _make_private(path: Path) -> None:
    """Make the file, where there is none, for nobody else to read: SQLite's own files beside it are then alike."""
    with suppress(OSError):
        path.touch(0o600, exist_ok=False)


def _values(row: JobRow) -> tuple[Any, ...]:
    plain = (row.id, row.client, row.kind, row.key, row.points, row.state, row.attempts)
    return (*plain, row.created, row.started, row.ended, row.error, json.dumps(row.results), row.bytes)
