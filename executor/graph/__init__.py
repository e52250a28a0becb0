"""Static graphs of Hugging Face modules: captured, annotated, cut at a plan's boundaries and run stage by stage.

Everything in this folder but this file needs torch and transformers, which are optional."""

from importlib.util import find_spec

from helmsman.schemas.errors import HardwareUnavailableError


def check_installed() -> None:
    """Raise HardwareUnavailableError when torch or transformers are not there."""
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            remedy = "install it: pip install 'helmsman[torch]'"
            raise HardwareUnavailableError(f"{package} is not installed", field="backend", value="torch", remedy=remedy)
