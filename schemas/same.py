"""Documents by identity, and values by a key, for remembering what was made of one without comparing all of it."""

from collections.abc import Hashable
from typing import Generic, TypeVar

DocumentT = TypeVar("DocumentT")


class Same(Generic[DocumentT]):
    """Holds a document, and equals whatever holds the same one: two documents of equal content differ."""

    __slots__ = ("document",)

    def __init__(self, document: DocumentT) -> None:
        self.document = document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.document is other.document

    def __hash__(self) -> int:
        return id(self.document)


class Keyed(Generic[DocumentT]):
    """Holds a value with a key of all that something is made of it from, and equals whatever holds the same key."""

    __slots__ = ("key", "value")

    def __init__(self, key: Hashable, value: DocumentT) -> None:
        self.key, self.value = key, value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)
