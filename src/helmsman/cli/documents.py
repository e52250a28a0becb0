"""Reading the documents that commands share."""

from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.schemas.errors import HelmError

if TYPE_CHECKING:
    from helmsman.schemas.plan import Plan


def read_plan(path: Path) -> "Plan":
    """The Plan at `path`, its invariants checked.

    Raises BadInputError or InfeasibleError naming the file."""
    from helmsman.planner.accept import accept
    from helmsman.schemas.plan import Plan
    from helmsman.schemas.read import read_document

    try:
        return accept(read_document(Plan, path))
    except HelmError as error:
        raise error.at(str(path)) from None
