"""Makes a page for each command, from the parsers that the commands use themselves."""

import argparse
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from docs.generator.markdown import block, code, escaped, page, section, table

HEAD = ("option", "meaning")
"""The columns of a table of options."""
CHECK = "helm-check"
"""The command that has forms."""
FORMS = ("plan", "served", "suite", "accept", "compare")
"""The forms of helm-check, each with options of its own."""

Pages = dict[str, str]
"""Pages by their places under the folder of the reference."""


def command_pages(root: Path) -> Pages:
    """Return a page for each command of the package, and one that lists them."""
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    parsers = {name: tuple(parsers_of(name, target.split(":")[0])) for name, target in sorted(scripts.items())}
    rows = [(f"[`{name}`]({name}.md)", escaped(forms[0].description or "")) for name, forms in parsers.items()]
    after = "What they all share, and exit codes, is told in [commands](../../commands.md)."
    pages = {f"commands/{name}.md": _page(name, forms) for name, forms in parsers.items()}
    return {"commands/index.md": page("Commands", table(("command", "what it does"), rows), after), **pages}


def parsers_of(name: str, module: str) -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of a command, and those of its forms; `module`: where the command is."""
    command = import_module(module)
    if name == CHECK:
        from helmsman.cli.gate import GATE_FORMS, gate_parser

        yield from (gate_parser(form) if form in GATE_FORMS else command.build_parser(form) for form in FORMS)
    elif hasattr(command, "build_parser"):
        yield command.build_parser()
    else:
        yield command._parser()


def options_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.Action]]:
    """Yield each argument of a parser that users see: the title of its group, how it is written, and itself."""
    for group in parser._action_groups:  # argparse has no public way to ask
        for action in group._group_actions:
            if action.help != argparse.SUPPRESS:
                yield group.title or "", _written(action), action


def _page(name: str, forms: tuple[argparse.ArgumentParser, ...]) -> str:
    if len(forms) == 1:
        return page(name, *_about(forms[0], level=2))
    return page(name, *(section(form.prog, *_about(form, level=3)) for form in forms))


def _about(parser: argparse.ArgumentParser, level: int) -> list[str]:
    """Return what is said of a form of a command, with a table for each group of options."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for title, written, action in options_of(parser):
        groups.setdefault(title, []).append((code(written), _meaning(parser, action)))
    tables = [section(title.capitalize(), table(HEAD, rows), level=level) for title, rows in groups.items()]
    usage = block(parser.format_usage().removeprefix("usage: "), "text")
    return [escaped(parser.description or ""), usage, block(_example(parser), "sh"), *tables]


def _example(parser: argparse.ArgumentParser) -> str:
    """Return the example of a parser's help."""
    text = (parser.epilog or "").split("example:\n", 1)[-1].split("\n\n", 1)[0]
    return "\n".join(line.strip() for line in text.splitlines())


def _written(action: argparse.Action) -> str:
    value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else "")
    if not action.option_strings:
        return str(value or action.dest)
    named = ", ".join(action.option_strings)
    value = value or (action.dest.upper() if action.nargs != 0 else "")
    return f"{named} {value}" if value and action.nargs != 0 else named


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return an option's help with its default, as --help prints it."""
    formatter = parser._get_formatter()
    return escaped(formatter._expand_help(action)) if action.help else ""
