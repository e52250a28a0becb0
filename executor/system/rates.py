"""Amounts a second, by a clock that may have stood still."""

from helmsman.schemas.errors import DisturbedError


def per_second(amount: float, seconds: float, what: str) -> float:
    """Return `amount` a second. Raises DisturbedError where the clock stood still during all of `what`, as it may on a
    machine that is suspended or moved."""
    if seconds <= 0.0:
        remedy = "measure again when the machine is not suspended or moved"
        raise DisturbedError(f"the clock stood still while {what} was measured", remedy=remedy)
    return amount / seconds
