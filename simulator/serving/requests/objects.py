"""Numbers out of JSON values that were not written by us; what is not one is refused by place and value."""

from typing import Any

import numpy as np

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.requests import Floats, Ints

MOST = 2**62


def numbers(values: Any, file: str, field: str) -> Floats:
    """Return a list of numbers. Raises BadInputError."""
    return np.array(_checked(values, (int, float), "a number", file, field), np.float64)


def whole_numbers(values: Any, file: str, field: str) -> Ints:
    """Return a list of whole numbers. Raises BadInputError."""
    return np.array(_checked(values, int, "a whole number", file, field), np.int64)


def _checked(
    values: Any, kinds: type[int] | tuple[type[int], type[float]], what: str, file: str, field: str
) -> list[Any]:
    if not isinstance(values, list):
        raise BadInputError(
            "a list is expected", file=file, field=field, value=values, remedy="write one value a request"
        )
    for place, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, kinds) or not -MOST < value < MOST:
            raise BadInputError(f"not {what}", file=file, field=f"{field}.{place}", value=value, remedy="correct it")
    return values
