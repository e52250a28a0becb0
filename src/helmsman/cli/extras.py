"""What commands need of Helm's extras: said before anything that imports it is imported."""

from collections.abc import Iterable
from importlib.util import find_spec

from helmsman.schemas.errors import UsageError


def check_installed(purpose: str, packages: Iterable[str], extra: str) -> None:
    """Raise UsageError for packages of an extra that are not installed, with the command that installs it."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise UsageError(f"{purpose} needs {', '.join(missing)}", remedy=f"pip install 'helmsman[{extra}]'")
