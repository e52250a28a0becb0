"""The arguments of commands that drive an engine which people have."""

import argparse
from pathlib import Path

from helmsman.cli.parser import Parser

OURS = "ours"
"""The engine that is Helm's own executor."""


def add_engine_arguments(parser: Parser) -> None:
    """--engine and --engine-python of a command that runs a plan."""
    group = parser.add_argument_group("other engines")
    what = "what runs the plan: Helm's executor, or llama.cpp with the settings that Helm writes for it (default: ours)"
    group.add_argument("--engine", choices=(OURS, "llama.cpp"), default=OURS, metavar="NAME", help=what)
    add_interpreter_argument(group)


def add_interpreter_argument(group: "argparse._ActionsContainer") -> None:
    """--engine-python."""
    python = (
        "an interpreter of another environment that has the engine's package, such as llama-cpp-python (default: this "
        "one, else a program of the engine on the path)"
    )
    group.add_argument("--engine-python", type=Path, metavar="PYTHON", help=python)
