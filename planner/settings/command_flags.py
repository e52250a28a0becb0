"""Command lines of engines, word by word: which flags there are, how many values each takes, and whether it decides
where anything is or how fast it is."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor
from typing import Literal, NamedTuple

from helmsman.schemas.errors import UsageError
from helmsman.schemas.near_names import did_you_mean

FIELD = "settings"
"""The option that holds settings of an engine."""

Effect = Literal["placed", "unpriced", "idle"]
"""placed: a prediction follows it; unpriced: it changes speed or memory, and no prediction follows that; idle: it
changes neither."""


class EngineFlag(NamedTuple):
    """A flag by all of its names, the one that explains itself last, and the number of its values; -1: any number."""

    names: tuple[str, ...]
    values: int
    effect: Effect

    @property
    def name(self) -> str:
        """Return the name that it is known by here."""
        return self.names[-1]


class GivenFlag(NamedTuple):
    """A flag of a command with its values, as somebody wrote it."""

    name: str
    effect: Effect
    values: tuple[str, ...]
    text: str


def flags(effect: Effect, values: int, *names: str) -> tuple[EngineFlag, ...]:
    """Return flags of one effect and number of values, each given as all of its names: `-c --ctx-size`."""
    return tuple(EngineFlag(tuple(words.split()), values, effect) for words in names)


@dataclass(frozen=True)
class CommandGrammar:
    """The flags of an engine. `joined`: whether `--flag=value` is taken; `dashes`: whether `--n_gpu` stands for
    `--n-gpu`."""

    engine: str
    flags: tuple[EngineFlag, ...]
    joined: bool = True
    dashes: bool = True

    @cached_property
    def known(self) -> Mapping[str, EngineFlag]:
        """Return the flags by every name."""
        return {name: flag for flag in self.flags for name in flag.names}

    def given(self, words: Sequence[str]) -> Iterator[GivenFlag]:
        """Yield the flags of a command after its program. Raises UsageError for one that the engine does not have, by
        its name, and for one without its values."""
        left = list(words)
        while left:
            word = left.pop(0)
            name, equals, value = word.partition("=") if self.joined and word.startswith("--") else (word, "", "")
            flag = self.known.get(name.replace("_", "-") if self.dashes and name.startswith("--") else name)
            if flag is None:
                raise self._unknown(name)
            if equals:
                values = [value]
            elif flag.values < 0:
                values = [left.pop(0) for _ in range(self._free(left))]
            else:
                values, left = left[: flag.values], left[flag.values :]
            if flag.values > 0 and len(values) < flag.values:
                problem = f"{name} of {self.engine} takes {'a value' if flag.values == 1 else f'{flag.values} values'}"
                raise UsageError(problem, field=FIELD, remedy="write it, or leave the flag out")
            yield GivenFlag(flag.name, flag.effect, tuple(values), shlex.join([name, *values]))

    def _free(self, left: Sequence[str]) -> int:
        """Return how many of the next words are no flags."""
        return next((number for number, word in enumerate(left) if word in self.known), len(left))

    def _unknown(self, name: str) -> UsageError:
        if not name.startswith("-"):
            problem, remedy = f"{name} is no flag of {self.engine}, nor a value of one", "leave it out"
            return UsageError(problem, field=FIELD, remedy=remedy)
        remedy = f"{did_you_mean(name, self.known)} Else leave it out"
        return UsageError(f"{name} is no flag of {self.engine} that is known here", field=FIELD, remedy=remedy)


def words_of(command: str) -> tuple[str, ...]:
    """Return the words of a command as a shell has them, on one line or several. Raises UsageError where a quotation
    does not end."""
    try:
        return tuple(shlex.split(command.replace("\\\n", " "), comments=True))
    except ValueError as error:
        raise UsageError(f"no command: {str(error).lower()}", field=FIELD, remedy="close what is quoted") from None


def flags_after_program(words: Sequence[str]) -> list[str]:
    """Return the words of a command from its first flag on: after `vllm serve MODEL`, or after Python and a module."""
    left = list(words)
    while left and (not left[0].startswith("-") or left[0] == "-m"):
        if left.pop(0) == "-m" and left:
            left.pop(0)
    return left


def texts(given: Iterable[GivenFlag], effect: Effect) -> tuple[str, ...]:
    """Return the flags of an effect, as they were written."""
    return tuple(flag.text for flag in given if flag.effect == effect)


def whole_number(flag: GivenFlag, least: int = 0) -> int:
    """Return a flag's value as a number of something. Raises UsageError for what is none."""
    try:
        number = int(flag.values[0])
    except ValueError:
        number = least - 1
    if number < least:
        remedy = f"write a whole number from {least} on"
        raise UsageError(f"not a number: {flag.text}", field=FIELD, value=flag.values[0], remedy=remedy)
    return number


def length(flag: GivenFlag, units: Mapping[str, int]) -> int:
    """Return a flag's value as a number of tokens, which may end with a unit. Raises UsageError for what is none."""
    said = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([A-Za-z]*)", flag.values[0])
    tokens = floor(float(said[1]) * units.get(said[2], 0 if said[2] else 1)) if said else 0
    if tokens < 1:
        remedy = f"write tokens, as in 4096, or with {', '.join(units)} behind"
        raise UsageError(f"not a length: {flag.name}", field=FIELD, value=flag.values[0], remedy=remedy)
    return tokens


def number_of(flag: GivenFlag, most: float = 2.0**40) -> float:
    """Return a flag's value as a number from 0 to `most`. Raises UsageError for what is none."""
    try:
        number = float(flag.values[0])
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        remedy = f"write a number from 0 to {most:g}"
        raise UsageError(f"not a number: {flag.text}", field=FIELD, value=flag.values[0], remedy=remedy)
    return number
