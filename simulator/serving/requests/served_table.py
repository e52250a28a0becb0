"""The requests of a table of served ones: as they came, with the tokens that were asked for."""

from pathlib import Path

from helmsman.schemas.requests import Place, Requests, make_requests
from helmsman.schemas.served_table import read_served


def read_served_requests(path: Path) -> tuple[Requests, Place]:
    """Arrivals in seconds after the table's own zero. Raises BadInputError."""
    served = read_served(path)
    names = {name: name for name in ("arrival_s", "prompt_tokens", "output_tokens")}
    return make_requests(served.arrival_s, served.prompt_tokens, served.output_tokens), Place(str(path), names)
