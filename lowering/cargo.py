"""Cargo: the data that a transfer, or another move, carries, and the words for it in the names of tasks.

`lowering.task_names` reads those names."""

from typing import NamedTuple

from helmsman.lowering.caches import CACHE_OF
from helmsman.lowering.graph import CACHED, Payload, Rows

CACHE_WORDS: dict[Payload, str] = {
    "new cache entries": "kv.new",
    "cache page": "kv.page",
    "swapped out": "kv.out",
    "swapped in": "kv.in",
}
"""The word in a task's name for a move of a whole cache, by what it carries; `op` of such a task is `kv`."""

_BEFORE_PIECE: dict[Payload, str] = {"activation": ":", "cache page": ""}


class Cargo(NamedTuple):
    """The data of a move, as the fields of `Task` have it; `word`: its word in the task's name; `op`: the `op` of a
    transfer of it."""

    operation: str
    payload: Payload
    rows: Rows | None
    piece: int | None
    home: str | None
    word: str
    op: str


def cargo(
    operation: str, payload: Payload, rows: Rows | None = None, piece: int | None = None, home: str | None = None
) -> Cargo:
    """Return the cargo with its words: `q.weights:0-64.1.nvme0` in the name of a task whose `op` is `q.weights`."""
    op = operation
    if payload == "weights":
        op = f"{operation}.weights"
    elif payload in CACHED:
        op = CACHE_OF[operation]
    word = rows_word(CACHE_WORDS.get(payload, op), rows)
    if piece is not None:
        word = f"{word}{_BEFORE_PIECE.get(payload, '.')}{piece}"
    return Cargo(operation, payload, rows, piece, home, word if home is None else f"{word}.{home}", op)


def rows_word(word: str, rows: Rows | None) -> str:
    """Return a word with the rows that it is about: `q:0-64`."""
    return word if rows is None else f"{word}:{rows[0]}-{rows[1]}"


def transfer_word(carried: Cargo, link: str) -> str:
    """Return the word for a transfer in a task's name: `q.weights:0-64@h2d`."""
    return f"{carried.word}@{link}"
