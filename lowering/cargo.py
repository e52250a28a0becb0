"""What moves carry, and what names of tasks call it; `lowering.task_names` reads that."""

from typing import NamedTuple

from helmsman.lowering.caches import CACHE_OF
from helmsman.lowering.graph import CACHED, Payload, Rows

CACHE_WORDS: dict[Payload, str] = {
    "new cache entries": "kv.new",
    "cache page": "kv.page",
    "swapped out": "kv.out",
    "swapped in": "kv.in",
}
"""What moves of a whole cache are called; their `op` is `kv`."""

_BEFORE_PIECE: dict[Payload, str] = {"activation": ":", "cache page": ""}


class Cargo(NamedTuple):
    """What a move carries: fields of `Task`; `word`: what its name calls that; `op`: of a transfer of it."""

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
    """The cargo with its names: `q.weights:0-64.1.nvme0` of `q.weights`."""
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
    """Some rows of what has a name: `q:0-64`."""
    return word if rows is None else f"{word}:{rows[0]}-{rows[1]}"


def transfer_word(carried: Cargo, link: str) -> str:
    """What names call a transfer: `q.weights:0-64@h2d`."""
    return f"{carried.word}@{link}"
