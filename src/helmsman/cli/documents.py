"""Reading the documents that commands share."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.schemas.errors import HelmError

if TYPE_CHECKING:
    from helmsman.schemas.plan import Plan


def plan_of(args: argparse.Namespace) -> "Plan":
    """Return the Plan that the arguments name, with a warning where it rests on disturbed figures; raises as
    `read_plan`."""
    from helmsman.analysis.disturbance import disturbed_plan
    from helmsman.cli.machine import warn

    plan = read_plan(args.plan)
    try:
        warn(args, disturbed_plan(plan))
    except HelmError as error:
        raise error.at(str(args.plan)) from None
    return plan


def read_plan(path: Path) -> "Plan":
    """Return the Plan at `path`, its invariants checked.

    Raises BadInputError or InfeasibleError naming the file."""
    from helmsman.planner.checks.accept import accept
    from helmsman.schemas.plan import Plan
    from helmsman.schemas.read import read_document

    try:
        return accept(read_document(Plan, path))
    except HelmError as error:
        raise error.at(str(path)) from None
