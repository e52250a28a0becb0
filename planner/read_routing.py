"""Reads a routing into the workload that has it."""

from pathlib import Path

from helmsman.planner.checks.routing_check import check_routing
from helmsman.schemas.errors import HelmError
from helmsman.schemas.model import Model
from helmsman.schemas.read import read_document
from helmsman.schemas.routing import Routing
from helmsman.schemas.workload import Workload


def routed(workload: Workload, given: Path | Routing, model: Model) -> Workload:
    """Return the workload whose tokens are routed as a document, or the file that has one, says.

    Raises BadInputError, naming the file or `routing`, for what is no routing of `model`."""
    routing = given if isinstance(given, Routing) else read_document(Routing, given)
    try:
        check_routing(routing, model)
    except HelmError as error:
        raise error.at("routing" if isinstance(given, Routing) else str(given)) from None
    return workload.model_copy(update={"routing": routing})
