"""Objects that other packages add to Helm by entry points: their names, and loading one with a clear error."""

from functools import cache
from typing import TYPE_CHECKING

from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@cache
def added(group: str) -> "dict[str, EntryPoint]":
    """Return the entry points of a group in installed packages, by name."""
    from importlib.metadata import entry_points  # takes 20 ms

    return {point.name: point for point in entry_points(group=group)}


def loaded(point: "EntryPoint", field: str) -> object:
    """Return the object that an entry point names. Raises UsageError, about `field`, where loading it fails."""
    try:
        result: object = point.load()
    except Exception as error:  # whatever another package does wrong
        raise refusal(point, field, f"cannot be loaded: {error!r}") from error
    return result


def refusal(point: "EntryPoint", field: str, problem: str) -> UsageError:
    """Return the error for an entry point of no use."""
    remedy = f"mend or remove the package that names {point.value} as a {field}"
    return UsageError(problem, field=field, value=point.name, remedy=remedy)
