"""Plans as a user gets them: helm-plan is asked."""

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from helmsman.cli.documents import read_plan
from helmsman.cli.plan import main as plan_command
from helmsman.schemas.errors import HelmError
from helmsman.schemas.plan import Plan


def ask(*words: str, **options: object) -> Plan:
    """What helm-plan answers to `--option value` for each that is not None, `--option` for True, and to `words`.

    Raises HelmError with what it says instead."""
    said = StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(said), redirect_stderr(said):
        file = Path(folder) / "plan.json"
        if plan_command([*_words(options), *words, "-o", str(file)]):
            raise HelmError(said.getvalue().strip().removeprefix("error: "))
        return read_plan(file)


def _words(options: dict[str, object]) -> list[str]:
    words = list[str]()
    for name, value in options.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", *(() if value is True else (str(value),))]
    return words
