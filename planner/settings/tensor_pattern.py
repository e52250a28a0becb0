"""Regular expressions over names of tensors, matched in a time that no pattern makes long.

Python's `re` tries one way after the other, and `(([a-z]*)*)*#` has more of them than anybody waits for. Here every
part of a pattern is tried at every place of a name once, and all places at which it can end are kept together."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import inf

_MOST_REPETITIONS = 8
"""Each takes about as long as all else in a pattern."""
_FEW_REPETITIONS = 2
_FEW_WAYS = 64
"""Ways through a pattern, by its `|`, up to which `re` is as fast as it is for one."""
_DEEPEST = 20
"""Groups within groups, each of which takes some of the interpreter's stack."""
_COUNT = re.compile(r"\{(\d{1,3})(?:(,)(\d{0,3}))?\}")
_SINGLE = re.compile(r"\\[^A-Za-z0-9]|\\[dDwWsS]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\()\[\]{}*+?|^$]", re.DOTALL)
"""One letter of a name: an escape, a class, or the letter itself."""
_COUNTS = {"*": (0, inf), "+": (1, inf), "?": (0, 1)}

Places = frozenset[int]
Ends = Callable[[str, int], Places]
"""The places of a name at which a part of a pattern can end that begins at a place."""


class PatternError(ValueError):
    """Raised for what is no pattern, or one that is not understood here."""


@dataclass(frozen=True, slots=True)
class TensorPattern:
    """A pattern, which is found in a name or not; `simple`: the same for `re`, where that has few ways to try."""

    ends: Ends
    simple: re.Pattern[str] | None = None

    def is_in(self, name: str) -> bool:
        """Return whether some part of a name matches."""
        if self.simple is not None:
            return self.simple.search(name) is not None
        return any(self.ends(name, place) for place in range(len(name) + 1))


def tensor_pattern(text: str) -> TensorPattern:
    """Return the pattern of a regular expression: letters, `.`, classes, groups, `|`, `* + ? {m,n}`, `^` and `$`.
    Raises PatternError for anything else."""
    reader = _PatternReader(text)
    ends = reader.choice()
    if reader.place < len(text):
        raise PatternError(f"unexpected {text[reader.place]!r} at position {reader.place}")
    try:
        return TensorPattern(ends, re.compile(text) if reader.simple else None)
    except re.error as error:
        raise PatternError(str(error)) from None


class _PatternReader:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self.place, self._text, self._repetitions = 0, text, 0
        self._depth, self._ways, self._nested = 0, 1, False

    @property
    def simple(self) -> bool:
        """Return whether `re` has few ways to try: some thousand in a name of 30 letters."""
        return not self._nested and self._repetitions <= _FEW_REPETITIONS and self._ways <= _FEW_WAYS

    def choice(self) -> Ends:
        """Return what `|` separates."""
        ways = [self._row()]
        while self._take("|"):
            ways.append(self._row())
        self._ways *= len(ways)
        return ways[0] if len(ways) == 1 else _once(lambda name, at: Places().union(*(w(name, at) for w in ways)))

    def _row(self) -> Ends:
        parts = []
        while self.place < len(self._text) and self._text[self.place] not in "|)":
            group = self._text[self.place] == "("
            parts.append(self._repeated(self._part(), group))

        def ends(name: str, at: int) -> Places:
            return reduce(lambda places, part: _after(part, name, places), parts, Places((at,)))

        return _once(ends)

    def _part(self) -> Ends:
        if self._take("("):
            if self._take("?") and not self._take(":"):
                raise PatternError("of groups with '?' only (?:...) is taken")
            self._depth += 1
            if self._depth > _DEEPEST:
                raise PatternError(f"more than {_DEEPEST} groups within each other")
            group = self.choice()
            self._depth -= 1
            if not self._take(")"):
                raise PatternError("a group does not end")
            return group
        if self._take("^"):
            return lambda name, at: Places(() if at else (0,))
        if self._take("$"):
            return lambda name, at: Places((at,) if at == len(name) else ())
        return self._letter()

    def _letter(self) -> Ends:
        matched = _SINGLE.match(self._text, self.place)
        if matched is None:
            raise PatternError(f"unexpected {self._text[self.place]!r} at position {self.place}")
        self.place = matched.end()
        try:
            single = re.compile(matched.group())
        except re.error as error:
            raise PatternError(str(error)) from None
        return lambda name, at: Places((at + 1,) if single.match(name, at) else ())

    def _repeated(self, part: Ends, group: bool) -> Ends:
        counts = self._counts()
        if counts is None:
            return part
        self._nested = self._nested or group
        self._repetitions += 1
        if self._repetitions > _MOST_REPETITIONS:
            raise PatternError(f"more than {_MOST_REPETITIONS} repetitions")
        if self._counts() is not None:
            raise PatternError(f"repeated twice before position {self.place}")
        return _once(_repetition(part, *counts))

    def _counts(self) -> tuple[int, float] | None:
        """Return how often the last part may come: at least and at most."""
        here = self._text[self.place : self.place + 1]
        if here in _COUNTS:
            self.place += 1
            counts: tuple[int, float] = _COUNTS[here]
        elif (matched := _COUNT.match(self._text, self.place)) is not None:
            self.place, least = matched.end(), int(matched[1])
            counts = least, least if matched[2] is None else int(matched[3] or 1000)
        else:
            return None
        if counts[0] > counts[1]:
            raise PatternError("a repetition whose least is more than its most")
        self._take("?")  # how eagerly, which changes nothing of whether it is found
        return counts

    def _take(self, letter: str) -> bool:
        if self._text[self.place : self.place + 1] != letter:
            return False
        self.place += 1
        return True


def _once(ends: Ends) -> Ends:
    """Return the same part, which knows the ends of the last name."""
    known: dict[tuple[str, int], Places] = {}

    def remembered(name: str, at: int) -> Places:
        if known and next(iter(known))[0] != name:
            known.clear()
        if (name, at) not in known:
            known[name, at] = ends(name, at)
        return known[name, at]

    return remembered


def _after(part: Ends, name: str, places: Places) -> Places:
    """Return the ends of a part that begins at any of some places."""
    return Places().union(*(part(name, place) for place in places))


def _closure(part: Ends) -> Ends:
    """Return a part that comes any number of times."""
    known: dict[str, list[Places]] = {}

    def ends(name: str, at: int) -> Places:
        if name not in known:
            known.clear()
            places = known[name] = [Places((place,)) for place in range(len(name) + 1)]
            for place in range(len(name), -1, -1):  # what comes later is known by then
                places[place] = places[place].union(*(places[end] for end in part(name, place)))
        return known[name][at]

    return ends


def _repetition(part: Ends, least: int, most: float) -> Ends:
    """Return a part that comes several times. Further times are tried until they lead nowhere new."""

    closure = _closure(part)

    def ends(name: str, at: int) -> Places:
        places, count = Places((at,)), 0
        while count < least:
            later = _after(part, name, places)
            count = least if later == places else count + 1
            places = later
        if most == inf:
            return _after(closure, name, places)
        latest, times = places, least
        while latest and times < most:
            latest = _after(part, name, latest) - places
            places, times = places | latest, times + 1
        return places

    return ends
