"""Settings of another engine from where a user has them: a file, a command, or a server that runs."""

from pathlib import Path

from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, UsageError

FIELD = "settings"
_MOST = 2**20
"""Bytes of a file, or of an answer, at most."""
_SECONDS = 5.0
"""How long a server may take to answer."""


def settings_text(given: str) -> str:
    """Return the settings in a file, what a llama-server says of itself where its address is given, or the command
    itself.

    Raises HardwareUnavailableError for a server that does not answer, BadInputError for a file or an answer that is too
    large or is no text, or a document of Helm's without settings, UsageError for an address of another kind."""
    from helmsman.planner.settings.registry import settings_in

    return settings_in(_text(given))


def _text(given: str) -> str:
    if given.startswith(("http://", "https://")):
        return _answer(given)
    path = Path(given)
    if not _is_file(path):
        return given
    try:
        with path.open("rb") as stream:
            return _decoded(stream.read(_MOST + 1), given)
    except OSError as error:
        raise BadInputError(f"cannot be read: {error.strerror}", file=given, remedy="check the path") from None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a command that no file system takes for a name
        return False


def _answer(address: str) -> str:
    """Return what `/props` of a server answers."""
    from http.client import HTTPException
    from urllib.parse import urlsplit
    from urllib.request import Request, urlopen

    parts = urlsplit(address)
    if not parts.hostname or parts.path not in ("", "/", "/props"):
        remedy = "give the address of llama-server, as http://127.0.0.1:8080"
        raise UsageError("not the address of a server", field=FIELD, value=address, remedy=remedy)
    asked = Request(f"{parts.scheme}://{parts.netloc}/props", headers={"Accept": "application/json"})
    try:
        with urlopen(asked, timeout=_SECONDS) as answer:
            return _decoded(answer.read(_MOST + 1), address)
    except (OSError, HTTPException, ValueError) as error:
        remedy = "start llama-server, or give its command"
        raise HardwareUnavailableError(f"does not answer: {error}", file=address, remedy=remedy) from None


def _decoded(content: bytes, name: str) -> str:
    if len(content) > _MOST:
        raise BadInputError(f"more than {_MOST} bytes", file=name, remedy="give the settings alone")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadInputError("no text", file=name, remedy="give a command, a Modelfile or JSON") from None
