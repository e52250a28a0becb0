"""Options of strategies as values: a frozen dataclass a strategy, whose fields say what they are for.

The command line, JSON and the documentation read them; `recorded` is what a plan says of those it was made with."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from helmsman.schemas.errors import UsageError

OptionsT = TypeVar("OptionsT")

Recorded = dict[str, str | int | float | bool]

_METADATA = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """The facts known of an option beside its name and default.

    `help`: a line for people; `metavar`: its value in that line; `choices`: all values there are; `parse`: its value
    from text, raising UsageError or ValueError; `recorded`: whether plans say it; `offered`: whether users are offered
    it, or only the strategies that ask others; `flag`: whether commands are, too, which have none for what a figure of
    one paper needs."""

    help: str
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    parse: Callable[[str], Any] = str
    recorded: bool = True
    offered: bool = True
    flag: bool = True


def option(
    default: Any,
    text: str,
    *,
    metavar: str | None = None,
    choices: tuple[str, ...] | None = None,
    parse: Callable[[str], Any] = str,
    recorded: bool = True,
    offered: bool = True,
    flag: bool = True,
) -> Any:
    """Return the field of an options dataclass; `text` is its line of help, a default of False makes it a switch."""
    assert default is not True, "switches are off by default"
    known = Option(text, metavar, choices, parse, recorded, offered, flag)
    return field(default=default, metadata={_METADATA: known})


def all_known(kind: type) -> bool:
    """Whether every field of a dataclass was made by `option`."""
    return all(_METADATA in field.metadata for field in fields(kind))


def options_of(kind: type) -> "Iterator[tuple[Field[Any], Option]]":
    """The fields of an options dataclass, each with what is known of it."""
    return ((field, field.metadata[_METADATA]) for field in fields(kind))


def offered(kind: type) -> dict[str, object]:
    """Names and defaults of the options that users are offered."""
    return {field.name: field.default for field, known in options_of(kind) if known.offered}


def recorded(options: object) -> Recorded:
    """Return what a plan says of the options it was made with: those that have a value."""
    values = ((field.name, getattr(options, field.name), known) for field, known in options_of(type(options)))
    return {name: value for name, value, known in values if known.recorded and value is not None}


def read_options(kind: type[OptionsT], values: Mapping[str, object], owner: str) -> OptionsT:
    """Make the options of a strategy, `owner`, from names and values as JSON has them.

    Raises UsageError for a name that it does not have, with the nearest that it has, and for a value of another
    kind."""
    from difflib import get_close_matches

    known = {field.name: (field, what) for field, what in options_of(kind) if what.offered}
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"use {', '.join(known) or 'no options'}"
            raise UsageError(f"{owner} has no such option", field=name, remedy=remedy)
    return kind(**{name: _value(known[name][0], known[name][1], value) for name, value in values.items()})


def _value(of: "Field[Any]", known: Option, value: object) -> object:
    """The value as its field holds it."""
    if value is None and of.default is None:
        return None
    if known.choices is not None and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if known.choices is not None and value not in known.choices:
        raise UsageError("no such choice", field=of.name, value=value, remedy=f"use one of {', '.join(known.choices)}")
    if isinstance(of.default, bool):
        if not isinstance(value, bool):
            raise UsageError("neither true nor false", field=of.name, value=value, remedy="write true or false")
        return value
    try:
        return known.parse(value if isinstance(value, str) else _as_text(value))
    except ValueError:
        raise UsageError("not a value of this option", field=of.name, value=value, remedy=known.help) from None


def _as_text(value: object) -> str:
    """A number as an option's own reader takes it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    return str(value)
