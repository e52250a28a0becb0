"""The options of a study on a command line: one for every field, in the words that other commands use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helmsman.schemas.errors import UsageError


@dataclass(frozen=True, slots=True)
class StudyFlag:
    """An option `name` of the field at `path` of a study; `repeated`: given once for every entry of a list, or of a
    mapping as NAME=NUMBER, or for an option of a strategy as STRATEGY.NAME=VALUE."""

    name: str
    path: tuple[str, ...]
    shown: str
    about: str
    repeated: bool = True
    number: bool = False
    mapping: bool = False
    options: bool = False

    @property
    def dest(self) -> str:
        """Return the name of its value."""
        return "_".join(self.path)


FLAGS = (
    StudyFlag("--model", ("models",), "NAME|DIR|FILE", "model: a catalogue name, a checkpoint or a file"),
    StudyFlag("--hw", ("machines",), "NAME|FILE|PARTS", "machine, or parts as 'gpu=NAME,cpu=NAME,ram=64GB'"),
    StudyFlag(
        "--change", ("changes",), "EDIT", "of machines: 'vram=8..24GB/4GB', 'link=pcie4x8', '+1 gpu'; or 'as it is'"
    ),
    StudyFlag("--format", ("formats",), "FORMAT", "of weights"),
    StudyFlag("--kv-format", ("kv_formats",), "FORMAT", "of KV caches"),
    StudyFlag("--engine", ("engines",), "NAME", "whose speed is predicted (default: ours)"),
    StudyFlag("--strategy", ("strategies",), "NAME", "how to plan (default: best)"),
    StudyFlag("--option", ("options",), "STRATEGY.NAME=V", "option of a strategy, as 'llama-cpp.ngl=20'", options=True),
    StudyFlag("--objective", ("objectives",), "NAME", "what is to be least"),
    StudyFlag("--prompt-tokens", ("prompt_tokens",), "N|N..M", "of a prompt (default: 128)", number=True),
    StudyFlag("--output-tokens", ("output_tokens",), "N|N..M", "to make (default: 128)", number=True),
    StudyFlag("--context", ("contexts",), "N|N..M", "tokens of KV caches (default: their sum)", number=True),
    StudyFlag("--batch", ("batches",), "N|N..M", "sequences that advance together (default: 1)", number=True),
    StudyFlag("--slo", ("slo",), "LIMITS", "to keep: ttft=2s,tpot=100ms, or a known name"),
    StudyFlag("--requests", ("serving", "requests"), "FILE|synthetic:..", "serve these as well"),
    StudyFlag("--policy", ("serving", "policies"), "NAME", "of serving"),
    StudyFlag("--think", ("serving", "think"), "TIME", "of a user between requests: ask for users"),
    StudyFlag("--rate", ("serving", "rate"), "R|R..S", "requests/s: ask for replicas", number=True),
    StudyFlag("--users", ("serving", "users"), "N|N..M", "users who think: ask for replicas", number=True),
    StudyFlag("--price", ("prices", "machines"), "NAME=P", "of a machine", mapping=True),
    StudyFlag("--change-price", ("prices", "changes"), "EDIT=P", "of a change", mapping=True),
    StudyFlag("--watts", ("prices", "watts"), "NAME=W", "that a machine draws while it serves", mapping=True),
    StudyFlag("--energy", ("prices", "energy"), "P", "price of a kWh", repeated=False, number=True),
    StudyFlag("--sensitivity", ("sensitivity",), "N", "best answers to ask again", repeated=False, number=True),
)


def overridden(content: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's content with the values of options, by their destinations, in place of its own. Raises
    UsageError."""
    result = dict(content)
    for flag in FLAGS:
        if flag.dest not in given:
            continue
        value = _value(flag, given[flag.dest])
        if len(flag.path) == 1:
            result[flag.path[0]] = value
        else:
            result[flag.path[0]] = {**_part(result.get(flag.path[0]), flag), flag.path[1]: value}
    return result


def _part(part: Any, flag: StudyFlag) -> dict[str, Any]:
    """Return a study's part, of which an option says one field. Raises UsageError for several, of which it may mean
    any."""
    if isinstance(part, list) and len(part) > 1:
        remedy = f"change them in the study, or leave {flag.name} out"
        raise UsageError(f"the study has several {flag.path[0]}", field=flag.name, remedy=remedy)
    part = part[0] if isinstance(part, list) and part else part
    return part if isinstance(part, dict) else {}


def _value(flag: StudyFlag, given: Any) -> Any:
    if flag.options:
        return _options(flag, given)
    if flag.mapping:
        return dict(_priced(flag, entry) for entry in given)
    return [_number(flag, entry) for entry in given] if flag.repeated else _number(flag, given)


def _options(flag: StudyFlag, given: list[str]) -> dict[str, dict[str, list[Any]]]:
    """Return the values of options by strategy and name. Raises UsageError."""
    options: dict[str, dict[str, list[Any]]] = {}
    for entry in given:
        whose, _, value = entry.partition("=")
        strategy, _, name = whose.partition(".")
        if not name or not value:
            raise UsageError("not an option with a value", field=flag.name, value=entry, remedy=f"write {flag.shown}")
        options.setdefault(strategy, {}).setdefault(name, []).append(option_value(value))
    return options


def option_value(text: str) -> Any:
    """Return a number, true or false, or the text that it is."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _priced(flag: StudyFlag, entry: str) -> tuple[str, float]:
    name, _, number = entry.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        remedy = f"write {flag.name} '{flag.shown}'"
        raise UsageError("not a name and a number", field=flag.name, value=entry, remedy=remedy) from None


def _number(flag: StudyFlag, entry: str) -> Any:
    """Return a whole number, a number, or the text that it is."""
    for kind in (int, float) if flag.number else ():
        try:
            return kind(entry)
        except ValueError:
            continue
    return entry
