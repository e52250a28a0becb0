"""Damaged inputs: bytes that were flipped, cut, repeated or exchanged, and JSON documents whose values were."""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

NUMBERS = (0, 1, 7, 31, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1)
"""What lengths, counts and offsets are when they are wrong."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -(10**9), 0.0, -0.0, 1e-320, 1e308, -1.5, 1e30, "", "x", "*",
    "\x00", "é世😀", "../../etc/passwd", "a" * 300, "{{ x }}", [], [[]], [None], {}, {"x": 1}, [1, 2, 3], ["x"] * 40,
)  # fmt: skip
"""What fields hold that no one meant."""

WORDS = ("NaN", "Infinity", "-Infinity", "1e999", "[" * 400 + "]" * 400, '"\\ud800"', '{"a": 1, "a": 2}')
"""Texts in the place of a JSON value."""


def damaged(data: bytes, chance: Random) -> bytes:
    """`data` after one to four changes of bytes."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        chance.choice(_BYTES)(found, chance)
    return bytes(found)


def _flip(data: bytearray, chance: Random) -> None:
    if data:
        data[_place(data, chance)] ^= 1 << chance.randrange(8)


def _set(data: bytearray, chance: Random) -> None:
    if data:
        data[_place(data, chance)] = chance.choice((0, 1, 9, 10, 32, 34, 48, 57, 92, 127, 128, 255))


def _number(data: bytearray, chance: Random) -> None:
    width = chance.choice((2, 4, 8))
    if len(data) >= width:
        at = min(_place(data, chance), len(data) - width)
        data[at : at + width] = (chance.choice(NUMBERS) % 256**width).to_bytes(width, chance.choice(("little", "big")))


def _cut(data: bytearray, chance: Random) -> None:
    at = _place(data, chance) if data else 0
    del data[at : at + chance.choice((1, 2, 8, 100, len(data)))]


def _repeat(data: bytearray, chance: Random) -> None:
    at, size = (_place(data, chance) if data else 0), chance.choice((1, 4, 16, 200))
    data[at:at] = data[at : at + size] * chance.choice((1, 2, 20))


def _insert(data: bytearray, chance: Random) -> None:
    at = _place(data, chance) if data else 0
    data[at:at] = chance.randbytes(chance.choice((1, 3, 30)))


def _place(data: bytearray, chance: Random) -> int:
    """Anywhere; more often near the beginning, where headers are."""
    return chance.randrange(min(len(data), chance.choice((16, 64, 512, len(data), len(data)))))


_BYTES: tuple[Callable[[bytearray, Random], None], ...] = (_flip, _flip, _set, _number, _number, _cut, _repeat, _insert)


def damaged_json(data: bytes, chance: Random) -> bytes:
    """The JSON text `data` after one to three of its values were exchanged, removed or doubled."""
    content = json.loads(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        content = _changed(content, chance)
    text = json.dumps(content)
    if chance.random() < 0.05:
        text = text.replace(json.dumps(_any_leaf(content, chance)), chance.choice(WORDS), 1)
    return text.encode()


def _changed(content: Any, chance: Random) -> Any:
    holder, key = _somewhere(content, chance)
    if holder is None:
        return deepcopy(chance.choice(VALUES))
    action = chance.randrange(10)
    if action == 0:
        del holder[key]
    elif action == 1:
        _double(holder, key, chance)
    elif action == 2:
        other, place = _somewhere(content, chance)
        holder[key] = deepcopy(other[place] if other is not None else None)
    elif action == 3 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = chance.choice((holder[key] * 2, holder[key] + 1, holder[key] - 1, -holder[key], holder[key] // 2))
    else:
        holder[key] = deepcopy(chance.choice(VALUES))
    return content


def _double(holder: Any, key: Any, chance: Random) -> None:
    if isinstance(holder, list):
        holder.insert(key, deepcopy(holder[key]))
    else:
        holder[chance.choice((f"{key}x", "schema", "", key.upper()))] = holder[key]


def _somewhere(content: Any, chance: Random) -> tuple[Any, Any]:
    """(a list or an object within `content`, a place in it): every level is as likely."""
    holder, key, node = None, None, content
    stop = chance.randrange(8)
    for _ in range(stop + 1):
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        if not keys:
            break
        holder, key = node, chance.choice(list(keys))
        node = node[key]
    return holder, key


def _any_leaf(content: Any, chance: Random) -> Any:
    holder, key = _somewhere(content, chance)
    return content if holder is None else holder[key]
