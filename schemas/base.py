"""The base of all documents: frozen, strict, closed, finite; and the bounded number types."""

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from helmsman.schemas.units import MAX_BYTES

MAX_COUNT = 10**9


class Frozen(BaseModel):
    """A closed, immutable value: unknown keys, NaN, infinities and booleans for numbers are refused."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        populate_by_name=True,
        defer_build=True,
        protected_namespaces=(),
    )


class Document(Frozen):
    """A versioned document; its JSON carries the version under the key `schema`.

    `byte_limit`: the largest file that is read as one."""

    byte_limit: ClassVar[int] = 4 * 2**20

    def to_json(self, indent: int | None = 1) -> str:
        """Return the canonical JSON text: declared key order, no nulls, shortest floats that read back equal."""
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=indent)

    def to_dict(self) -> dict[str, Any]:
        """Return the same content as JSON-ready Python values."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Report(Document):
    """A document whose JSON writes null for what is absent, where other documents leave it out."""

    def to_json(self, indent: int | None = 1) -> str:
        """Return the JSON text, nulls included."""
        return self.model_dump_json(by_alias=True, indent=indent)

    def to_dict(self) -> dict[str, Any]:
        """Return the same content as JSON-ready Python values."""
        return self.model_dump(mode="json", by_alias=True)


def version(identifier: str) -> Any:
    """Return the field that holds a document's version."""
    return Field(default=identifier, alias="schema", description="document type and version")


def empty(values: tuple[object, ...]) -> bool:
    """Whether a field that later versions added has nothing to say, and is left out of JSON."""
    return not values


def absent(value: object) -> bool:
    """Whether a field that later versions added is not there, and is left out of JSON."""
    return value is None


def zero(value: float) -> bool:
    """Whether a number that later versions added is 0, and is left out of JSON."""
    return value == 0


def mistake(message: str, remedy: str, field: str | None = None, value: Any = None) -> PydanticCustomError:
    """Return the error that a validator raises: `field` lies within the object validated, `value` is what was found
    there."""
    context = {"message": message, "remedy": remedy, "field": field, "value": value}
    return PydanticCustomError("mistake", "{message}", context)


Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Index = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES)]
Positive = Annotated[float, Field(gt=0.0, le=1e24)]
NonNegative = Annotated[float, Field(ge=0.0, le=1e24)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]
Words = Annotated[str, Field(min_length=1, max_length=4000)]
FilePath = Annotated[str, Field(min_length=1, max_length=4 * 4096)]
"""A path as text: where it is not UTF-8, with escapes."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Total = Annotated[int, Field(ge=0)]
Derived = Annotated[float, Field(ge=0.0)]
"""What is computed of bounded inputs may exceed their bounds, and must still have a number to be refused with."""
