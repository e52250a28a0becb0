"""Devices by the names that people, shops, drivers and the system give them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from helmsman.schemas.errors import UsageError
from helmsman.schemas.near_names import did_you_mean

Row = Mapping[str, Any]
"""A device of a table: its `name`, other `names` that it has, and its figures."""

_HYPHEN = re.compile(r"-(?=\d+ ?gi?b?\b)")
_SIZE = re.compile(r"(?<![\w.])(\d+) ?gi?b?\b(?!/)")
_BESIDE = re.compile(r"\([^)]*\)|@.*$| w/.*$| with radeon.*$|,.*$|\b\d+th gen\b|\b\d+-cores? processor\b|\b\d+-cores\b")
"""What stands beside a name: marks, clocks, graphics in the chip, generations, numbers of cores."""
_SPELLINGS = (
    (re.compile(r"\b(m\d)(pro|max|ultra)\b"), r"\1 \2"),
    (re.compile(r"\bsxm\d\b"), "sxm"),
    (re.compile(r"\bmobile\b"), "laptop"),
)
_VENDORS = frozenset({"nvidia", "geforce", "tesla", "amd", "radeon", "intel", "apple"})
"""Words that vendors begin names with."""
_EVERYWHERE = _VENDORS | frozenset(
    {"core", "processor", "cpu", "gpu", "graphics", "generation", "workstation", "server", "edition"}
)
"""Words of vendors, and others that tell no devices apart."""
_SERIES = re.compile(r"(?<=\bRyzen )[3579] ")
"""The digit of a series, which people leave out before a number."""
_COUNT = re.compile(r"^\s*(\d{1,3})\s*[x×][ -]*(\S.*)$", re.IGNORECASE)
"""A number of devices and their name: four digits before an x are a model (7800X3D)."""
_BETWEEN = re.compile(r"(\s*(?:,|&|\band\b|\s\+\s|\+(?=[a-z]))\s*)(?![^(]*\))", re.IGNORECASE)
"""Matches the separator between two names of a list (comma, `&`, `and`, `+`), outside of parentheses; the plus sign
that ends `8480+` is part of the name."""
_MODEL = re.compile(r"\d{3}|[a-z]\d|\d[a-z]")
"""Matches a word that holds a model number, such as `3090` or `7800x3d`."""
_SUFFIXES = {"Intel": re.compile(r"(?<=[0-9k])f$"), "AMD EPYC": re.compile(r"(?<=\d{4})p$")}
"""By the beginning of names: of processors without graphics, and of those that work alone on a board. Nothing else of
these is another."""
_NAMES = 2048
"""The number of names whose words are kept: all of the catalogue's, which every look-up goes through."""

_REPORTED = (0.9, 1.02)
"""Of a GPU's memory by its data sheet: what drivers say that it has. Error correction takes a sixteenth of some."""


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A name as words that tell devices apart, and the GB of memory that it states, if it does."""

    words: tuple[str, ...]
    size: int | None

    @property
    def key(self) -> str:
        """All words as one: spaces and dashes come and go."""
        return "".join(self.words)

    @property
    def runs(self) -> frozenset[str]:
        """Every run of words as one: people write `7950X` or `i7-13700H` for the full name."""
        ends = range(len(self.words) + 1)
        return frozenset("".join(self.words[start:end]) for start in ends for end in ends if end > start)


@lru_cache(maxsize=_NAMES)
def read_name(text: str) -> DeviceName:
    """Return the words of a name without what every name of a vendor has, and the memory that it states."""
    plain = _HYPHEN.sub(" ", text.lower().replace("_", " "))
    sized = _SIZE.search(plain)
    plain = _BESIDE.sub(" ", _SIZE.sub(" ", plain))
    for pattern, spelling in _SPELLINGS:
        plain = pattern.sub(spelling, plain)
    words = tuple(word for word in re.findall(r"[a-z0-9+]+", plain) if word not in _EVERYWHERE)
    return DeviceName(words, int(sized[1]) if sized else None)


def listed_names(text: str, rows: Sequence[Row]) -> list[tuple[int, str]]:
    """Return the devices that a text lists with `,`, `+`, `&` or `and` between, each as a count (`2x NAME`, else 1) and
    a name with what stands beside it: what tools print behind one (`RTX 3090, 24576 MiB`) is no name."""
    first, *rest = _BETWEEN.split(text)
    names = [first]
    for between, part in zip(rest[::2], rest[1::2], strict=True):
        if _is_name(_counted(part)[1], rows):
            names.append(part)
        else:
            names[-1] += between + part
    return [_counted(name) for name in names]


def _counted(text: str) -> tuple[int, str]:
    """Return the count and the name of `2x NAME`; NAME alone is one."""
    match = _COUNT.match(text)
    return (int(match[1]), match[2]) if match else (1, text)


def _is_name(text: str, rows: Sequence[Row]) -> bool:
    """Return whether a text is written as the name of a device, known or not: with a vendor, with the beginning of a
    name of the table, or with a model's number of one."""
    words = read_name(text).words
    if not _VENDORS.isdisjoint(re.findall(r"[a-z]+", text.lower())):
        return True
    if any(form.words[:1] == words[:1] for row in rows for form in _forms(row)):
        return True
    return any(map(_MODEL.search, words)) and bool(_matches(text, rows))


def find_device(name: str, rows: Sequence[Row], field: str, what: str) -> Row:
    """Return the device of a table that `name` means; `what`: the kind, in words.

    The whole name wins over a part of one, and a name that states no memory means the device that states none either.
    Raises UsageError with close names where none is called so, and with all of them where several are."""
    matches = _matches(name, rows)
    if len(matches) == 1:
        return matches[0]
    names = [row["name"] for row in matches or rows]
    problem = f"more than one {what} is called so" if matches else f"no {what} of the catalogue is called so"
    remedy = f"write {' or '.join(names[:6])}" if matches else did_you_mean(name, names)
    raise UsageError(problem, field=field, value=name, remedy=remedy)


def reported_devices(name: str, rows: Sequence[Row], capacity: int | None) -> list[Row]:
    """Return the devices that a driver may mean by `name`, of those with `capacity` bytes of memory, as it says."""
    wanted = read_name(name)
    named = [row for row in rows if _keyed(row, wanted)]
    named = named or [row for row in rows if any(wanted.key in form.runs for form in _forms(row))]
    return [row for row in named if capacity is None or has_capacity(row, capacity)]


def has_capacity(row: Row, capacity: int) -> bool:
    """Whether a driver may say of a GPU that it has so many bytes; of one in a processor's chip any number."""
    low, high = _REPORTED
    whole: int = row["capacity"]
    return "pcie" not in row or low * whole <= capacity <= high * whole


def _matches(name: str, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the devices that `name` may mean: by all their words, else by some, one after the other. Memory that is
    stated must be theirs; where none is, a device whose name states none goes first."""
    wanted = read_name(name)
    if not wanted.key:
        return ()
    for vendor, reading in (("", wanted), *_shorter(wanted)):
        known = [row for row in rows if row["name"].startswith(vendor) and ("pipes" in row or not vendor)]
        same = [row for row in known if _keyed(row, reading)]
        exact = [row for row in same if any(form.size == reading.size for form in _keyed(row, reading))]
        parts = [] if same else [row for row in known if any(reading.key in form.runs for form in _forms(row))]
        matches = exact or [row for row in same or parts if _fits(row, reading)]
        if matches:
            return matches
    return ()


def _shorter(name: DeviceName) -> list[tuple[str, DeviceName]]:
    """Return the name without a letter at its end that means no other processor, with the beginning of those for which
    that is so."""
    *others, last = name.words
    ends = ((vendor, pattern.sub("", last)) for vendor, pattern in _SUFFIXES.items() if pattern.search(last))
    return [(vendor, DeviceName((*others, end), name.size)) for vendor, end in ends]


def _keyed(row: Row, name: DeviceName) -> list[DeviceName]:
    """Return the names of a device that have the same words as `name`."""
    return [form for form in _forms(row) if form.key == name.key]


def _fits(row: Row, wanted: DeviceName) -> bool:
    """Whether the device has the memory that a name states; of a chip's the machine may have less."""
    if wanted.size is None or "capacity" not in row:
        return True
    own: int = round(row["capacity"] / 2**30)
    return wanted.size == own if "pcie" in row else wanted.size <= own


def _forms(row: Row) -> list[DeviceName]:
    """Return every name of a device, the first also without the digit of its series."""
    names = (row["name"], *row.get("names", ()), _SERIES.sub("", row["name"]))
    return [read_name(name) for name in dict.fromkeys(names)]
