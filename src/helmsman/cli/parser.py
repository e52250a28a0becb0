"""Parsers of commands: mistakes that are one-line errors, flags for the library's options, help and completions."""

import argparse
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

from helmsman import __version__
from helmsman.cli.output import say
from helmsman.schemas.errors import UsageError
from helmsman.schemas.near_names import close_names

PLACE = "PLACE"
"""As --out is called where it may name a folder."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are UsageErrors, so that --json covers them too. `writes_file`: --out names a
    file, not a folder; `foreign`: what is wrong with an option that it does not have, if that is known; `needed_first`:
    the options that --help shows, all if there are none, and `--help-all` the rest."""

    writes_file = True
    needed_first: frozenset[str] = frozenset()
    foreign: "Callable[[str], UsageError | None]" = staticmethod(lambda flag: None)

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting."""
        field, message = _option_named(message)
        remedy = f"see {self.prog} --help"
        if field and message == _UNRECOGNIZED:
            from difflib import get_close_matches

            if foreign := self.foreign(field):
                raise foreign
            near = get_close_matches(field, self._option_string_actions, 1, 0.7)
            remedy = f"did you mean {near[0]}? Else {remedy}" if near else remedy
        raise UsageError(message, field=field, remedy=remedy)

    def show_first(self, options: Collection[str], others: str) -> None:
        """Let --help show no more than these `options`, by their flags, and `others`: where the rest is told."""
        self.needed_first = frozenset(options)
        self.epilog = f"{self.epilog}\n\n{others}"
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every option and exit")

    def format_help(self) -> str:
        """Return the text that --help prints."""
        if not self.needed_first:
            return super().format_help()
        rest = [action for action in self._actions if action.option_strings and not self._is_first(action)]
        told, about = [other.help for other in rest], [group.description for group in self._action_groups]
        for other in rest:
            other.help = argparse.SUPPRESS
        for group in self._action_groups:
            group.description = None
        try:
            return super().format_help()
        finally:
            for other, text in zip(rest, told, strict=True):
                other.help = text
            for group, text in zip(self._action_groups, about, strict=True):
                group.description = text

    def _is_first(self, action: argparse.Action) -> bool:
        return not self.needed_first.isdisjoint(action.option_strings)

    def flag(self, option: str) -> str | None:
        """Return the flag of an option, as the library names it, or of one of its settings (`loopback cores`); None
        where the command has none."""
        option, _, setting = option.partition(" ")
        names = (option.replace(".", "_"), _OTHERWISE.get(option))
        named = (action.option_strings for action in self._actions if action.dest in names and action.option_strings)
        flag = next((flags[-1] for flags in named), None)
        return f"{flag} {setting}" if flag and setting else flag

    def in_flags(self, text: str) -> str:
        """Words of the library, which names options between backquotes, with the command's flags for them."""
        return re.sub("`([a-z][a-z0-9_]*)`", lambda match: self.flag(match[1]) or _of_plans(match[1]) or match[0], text)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A choice that there is not is said with those that are like it, or else all."""
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        near, flag = close_names(str(value), names), "/".join(action.option_strings) or action.dest
        remedy = f"did you mean {' or '.join(near[:3])}?" if near else f"use {', '.join(names)}"
        raise UsageError("no such choice", field=flag, value=value, remedy=remedy)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Return a value as its argument's type reads it; what that refuses names the argument."""
        try:
            return super()._get_value(action, arg_string)
        except UsageError as error:
            error.field = error.field or "/".join(action.option_strings) or action.dest
            raise


_OTHERWISE = {
    "hardware": "hw",
    "vram_available": "vram_avail",
    "ram_available": "ram_avail",
    "policy_options": "policy_option",
    "machines": "compare_hw",
    "changes": "upgrade",
}
"""Options that a command line calls by another name than the library."""

OF_PLANS = (
    *("batch", "compress", "context", "cpu_offload_gb", "expert_slots", "format", "home", "kv_format", "kv_rule"),
    *("managed", "model", "nvme", "pinning", "prefix_tokens", "strategy"),
)
"""Options of helm-plan that other commands speak of: what a plan would have to be made with."""


def _of_plans(option: str) -> str | None:
    """Return the flag with which helm-plan takes an option that other commands do not have."""
    return f"--{option.replace('_', '-')}" if option in OF_PLANS else None


_UNRECOGNIZED = "unrecognized argument"


def _option_named(message: str) -> tuple[str | None, str]:
    """(option, rest) of what argparse says."""
    if match := re.match(r"argument ([^:\s]+): (.*)", message, re.DOTALL):
        return match[1], match[2]
    if match := re.match(r"the following arguments are required: (.*)", message):
        return match[1], "required"
    if match := re.match(r"unrecognized arguments: (-[^\s=]+)", message):
        return match[1], _UNRECOGNIZED
    return None, message


class _PrintAction(argparse.Action, ABC):
    """Prints a text and exits; what text, its subclasses say."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, Parser)
        say(self.text(parser, str(values)))
        parser.exit(0)

    @abstractmethod
    def text(self, parser: Parser, value: str) -> str:
        """Return the text for the option's value."""


class _HelpAll(_PrintAction):
    """Prints every option."""

    def text(self, parser: Parser, value: str) -> str:
        """Return all of the help."""
        parser.needed_first = frozenset()
        return parser.format_help().rstrip("\n")


_LISTED = {"model": "models", "hw": "machines", "gpu": "gpus", "cpu": "cpus", "policy": "policies"}
"""The kinds of helm-list that name what options take, by the option's name."""


class _Completion(_PrintAction):
    """Prints a completion script, which asks helm-list for names; shtab is imported only here."""

    def text(self, parser: Parser, value: str) -> str:
        """Return the script for a shell."""
        import shtab

        for action in parser._actions:
            if action.dest in _LISTED:
                names: Any = action
                names.complete = shtab.cmd(f"helm-list {_LISTED[action.dest]} -q")
        return shtab.complete(parser, value)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in which every option has its default, where its own text does not say it."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if (
            not action.option_strings
            or "default" in text
            or action.dest in ("help", "version", "completion", "help_all")
        ):
            return text
        if action.required:
            return f"{text} (required)"
        if action.default in (None, (), []):
            return f"{text} (default: none)"
        return f"{text} (default: {'off' if action.nargs == 0 else '%(default)s'})"


def command_parser(prog: str, description: str, example: str, out: str = "FILE") -> Parser:
    """Return a parser with the options that every command has; `out` other than FILE is what the command must write."""
    parser = Parser(
        prog=prog,
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    shells = ("bash", "zsh", "tcsh", "fish")
    parser.add_argument("--completion", action=_Completion, choices=shells, help="print a completion script")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    what = "also write the JSON document to FILE" if out == "FILE" else f"the {out.lower()} to write"
    parser.add_argument("-o", "--out", type=Path, metavar=out, required=out != "FILE", help=what)
    parser.writes_file = out != PLACE
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    volume.add_argument("-v", "--verbose", action="store_true", help="print more; tracebacks on failure")
    return parser
