"""Base units inside (bytes, seconds, bytes/s, FLOP/s); everything else is parsed and printed here.

GB = 1e9 bytes, GiB = 2**30 bytes; only capacities of memory modules and cards, which are sold in powers of two, are
read as such (`parse_capacity`)."""

import re
from math import isfinite

from helmsman.schemas.errors import UsageError

MAX_BYTES = 2**60
_SIZES = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_PER_SECOND = {"": 1, "S": 1, "MS": 10**3, "US": 10**6, "NS": 10**9}
_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*$")


def parse_bytes(text: str, field: str) -> int:
    """`64GB`, `512MiB`, `1024` to bytes. Raises UsageError."""
    number, unit = _split(text, field, "a size such as 64GB or 512MiB")
    size = number * _lookup(_SIZES, unit, text, field, "B, MB, GB, MiB, GiB")
    if not size <= MAX_BYTES:
        raise UsageError("too large", field=field, value=text, remedy="use at most 2**60 bytes")
    return round(size)


_SOLD_AS = {"KB": "KiB", "MB": "MiB", "GB": "GiB", "TB": "TiB"}


def parse_capacity(text: str, field: str) -> int:
    """Return the bytes of memory modules or of a card: `64GB` is 64 GiB, as they are sold. Raises UsageError."""
    number, unit = _split(text, field, "a size such as 64GB or 512MiB")
    return parse_bytes(f"{number}{_SOLD_AS.get(unit.upper(), unit)}", field)


def parse_rate(text: str, field: str) -> float:
    """`2GB/s` to bytes per second. Raises UsageError."""
    number, unit = _split(text, field, "a rate such as 2GB/s")
    rate = number * _lookup(_SIZES, unit.upper().removesuffix("/S"), text, field, "MB/s, GB/s, GiB/s")
    if not isfinite(rate):
        raise UsageError("too large", field=field, value=text, remedy="write a rate such as 2GB/s")
    return rate


def parse_seconds(text: str, field: str) -> float:
    """`20us`, `1.5ms`, `2s` to seconds. Raises UsageError."""
    number, unit = _split(text, field, "a time such as 20us or 1.5ms")
    return number / _lookup(_PER_SECOND, unit, text, field, "s, ms, us, ns")


def format_bytes(count: float) -> str:
    """Return bytes for people, decimal units."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f} B"


def format_rate(rate: float) -> str:
    """Return bytes per second for people."""
    return f"{format_bytes(rate)}/s"


def format_number(value: float, digits: int) -> str:
    """Return a number for people, with so many significant `digits`, and never as a power of ten of a large one."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text else text


def format_seconds(seconds: float) -> str:
    """Return seconds for people."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= 0.9995 * size:  # three digits of less would be a thousand of the smaller unit
            return f"{format_number(seconds / size, 3)} {unit}"
    return f"{format_number(seconds / 1e-9, 3)} ns"


def _split(text: str, field: str, expected: str) -> tuple[float, str]:
    match = _NUMBER.match(text)
    if match is None:
        raise UsageError("not a quantity", field=field, value=text, remedy=f"write {expected}")
    number = float(match[1])
    if not isfinite(number):
        raise UsageError("too large", field=field, value=text, remedy=f"write {expected}")
    return number, match[2]


def _lookup(table: dict[str, int], unit: str, text: str, field: str, known: str) -> int:
    if unit.upper() not in table:
        raise UsageError("unknown unit", field=field, value=text, remedy=f"use one of {known}")
    return table[unit.upper()]
