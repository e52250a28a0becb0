"""Documents by identity, for remembering what was made of one without comparing all of it."""

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
