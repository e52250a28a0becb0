"""Reads a routing into the workload that has it."""

from pathlib import Path

from helmsman.planner.checks.routing_check import check_routing
from helmsman.schemas.errors import BadInputError, HelmError
from helmsman.schemas.model import Model
from helmsman.schemas.read import read_document
from helmsman.schemas.routing import Routing
from helmsman.schemas.workload import Workload

_PARQUET = b"PAR1"
"""The first bytes of recorded traces."""


def routed(workload: Workload, given: Path | Routing, model: Model) -> Workload:
    """Return the workload whose tokens are routed as a document, or the file that has one, says.

    Raises BadInputError, naming the file or `routing`, for what is no routing of `model`."""
    routing = given if isinstance(given, Routing) else _read(given)
    try:
        check_routing(routing, model)
    except HelmError as error:
        raise error.at("routing" if isinstance(given, Routing) else str(given)) from None
    return workload.model_copy(update={"routing": routing})


def _read(path: Path) -> Routing:
    """Read a routing. Raises BadInputError for anything else, with the way from a trace to a routing."""
    try:
        return read_document(Routing, path)
    except BadInputError:
        if _begins(path, _PARQUET):
            message, remedy = "a trace of routing, not a routing", "fit one to it with helm-fit-routing"
            raise BadInputError(message, file=str(path), remedy=remedy) from None
        raise


def _begins(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic
