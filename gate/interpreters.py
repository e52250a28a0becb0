"""Helm's commands as processes of an interpreter: this one's version, or another environment's."""

import sys
from collections.abc import Sequence
from pathlib import Path

from helmsman.schemas.errors import UsageError

THIS = sys.executable
"""The interpreter that runs the gate."""


def helm_command(python: str, module: str, *arguments: object) -> list[str]:
    """Return the words that run a command of `helmsman.cli` with an interpreter, as its console script would."""
    program = f"import sys; from helmsman.cli.{module} import main; sys.exit(main(sys.argv[1:]))"
    return [python, "-c", program, *map(str, arguments)]


def check_interpreter(
    path: Path, field: str = "baseline_python", where: str = "an environment that has the old version"
) -> str:
    """Return the path of an interpreter as processes are started with it: a link of an environment stays what it is.

    `field`: who names it, `where`: what has it, for errors. Raises UsageError where there is no such file."""
    if not path.is_file():
        remedy = f"name the python of {where}, such as old/bin/python"
        raise UsageError("no such interpreter", field=field, value=str(path), remedy=remedy)
    return str(path.absolute())


def version_command(python: str) -> Sequence[str]:
    """Return the words that print an interpreter's version of Helm."""
    return [python, "-c", "import helmsman; print(helmsman.__version__)"]
