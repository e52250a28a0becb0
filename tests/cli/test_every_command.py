"""What all commands have in common: help with defaults, and errors in both forms."""

import argparse
import json
from importlib import import_module
from pathlib import Path
from tomllib import loads

import pytest
from together import together

from helmsman.cli.parser import Parser
from helmsman.planner.registry import OWN

ROOT = Path(__file__).parents[2]
SCRIPTS = loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
COMMANDS = {name: import_module(place.partition(":")[0]) for name, place in SCRIPTS.items()}
ENDING = {"help", "help_all", "version", "completion"}
"""Options that print something and end."""


def parsers() -> dict[str, Parser]:
    """Every parser there is; helm-plan has one for each strategy."""
    made = {name: getattr(of, "build_parser", None) or of._parser for name, of in COMMANDS.items()}
    of_strategies = {f"helm-plan {strategy}": made["helm-plan"](strategy) for strategy in (*OWN, "all")}
    return {**{name: make() for name, make in made.items()}, **of_strategies}


@together(("name", "parser"), parsers().items())
def test_every_option_has_a_help_with_its_default(name: str, parser: Parser) -> None:
    formatter = parser._get_formatter()
    for action in parser._actions:
        shown = formatter._expand_help(action) if action.help else ""
        assert shown.strip(), f"{name} {action.dest} has no help"
        if action.option_strings and action.dest not in ENDING and action.help != argparse.SUPPRESS:
            assert any(word in shown for word in ("default", "(required)")), f"{name} {action.option_strings[-1]}"


@pytest.mark.parametrize("name", COMMANDS)
def test_an_error_is_a_document_and_a_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert COMMANDS[name].main(["--json", "--no-such-option"]) == 2
    printed = capsys.readouterr()
    error = json.loads(printed.out)["error"]
    assert error["code"] == "usage" and error["remedy"]
    assert printed.err.startswith(f"{name}: error: ") and printed.err.count("\n") == 1
    assert error["message"] in printed.err and error["remedy"] in printed.err
