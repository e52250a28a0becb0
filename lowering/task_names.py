"""The reader of tasks' names, as the rows of a Trace and the terms of a plan have them: both come from files."""

import re
from typing import NamedTuple

from helmsman.lowering.caches import CACHE_OF
from helmsman.lowering.cargo import CACHE_WORDS
from helmsman.lowering.graph import MoveKind, Payload, Rows
from helmsman.lowering.rules import PREFIX

_NAME = re.compile(
    r"(?:(?P<step>\d+)/)?(?:(?P<layer>\d+)\.)?"
    r"(?P<word>[a-z]\w*(?:\.(?:weights|new|out|in|host|prompt|decode|page(?=\d)))?)"
    r"(?::(?P<first>\d+)-(?P<last>\d+))?"
    r"(?:[.:]?(?P<piece>\d+))?(?:\.(?P<home>.+?))??(?:\.(?P<made>pin|decompress|reshape))?"
    r"(?:@(?P<link>.+?))?(?:#(?P<batch>\d+))?"
)
_MOVES: dict[str, MoveKind] = {"transfer": "transfer", "decompress": "decompress", "pin": "pin", "reshape": "reshape"}
_READERS = {word: operation for operation, word in CACHE_OF.items()}
_PAYLOADS = {word: payload for payload, word in CACHE_WORDS.items()}


class TaskName(NamedTuple):
    """The fields of `Task` that a name tells; `move`: the kind of a move, None for an operation."""

    step: int | None
    layer: int | None
    batch: int
    move: MoveKind | None
    operation: str
    payload: Payload | None
    rows: Rows | None
    piece: int | None
    home: str | None


def read_name(text: str) -> TaskName:
    """Return what a task's id tells, or its `op`, from which a transfer cannot be told from an operation; any other
    text is taken for the name of an operation."""
    match = _NAME.fullmatch(text)
    if match is None:
        return TaskName(None, None, 0, None, text, None, None, None, None)
    word, move = match["word"], _MOVES.get(match["made"] or ("transfer" if match["link"] else ""))
    operation, payload = _subject(word, move)
    rows = None if match["first"] is None else (int(match["first"]), int(match["last"]))
    step, layer, piece = (None if match[name] is None else int(match[name]) for name in ("step", "layer", "piece"))
    return TaskName(step, layer, int(match["batch"] or 0), move, operation, payload, rows, piece, match["home"])


def _subject(word: str, move: MoveKind | None) -> tuple[str, Payload | None]:
    operation, _, what = word.partition(".")
    if word in _PAYLOADS:
        return "attention", _PAYLOADS[word]
    if word in _READERS:
        return _READERS[word], "cache"
    if what == "weights":
        return operation, "weights"
    if word == PREFIX:
        return PREFIX, "prefix"
    if move == "reshape":
        return operation, "cache"
    return operation, "activation" if move == "transfer" else None
