"""The first of names that occurs twice, in time that grows with their number alone: documents may have millions."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

NameT = TypeVar("NameT", bound=Hashable)


def first_repeated(names: Iterable[NameT]) -> NameT | None:
    """Return the first of `names` that one before it equals; None where all are different."""
    seen: set[NameT] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
