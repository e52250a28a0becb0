"""Reading one field of a `config.json`: type and range checked, every failure names file, field, value and remedy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from helmsman.schemas.errors import BadInputError

MAX_DIMENSION = 2**24


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object of a config; `null` counts as absent, as in Hugging Face's config classes.

    `within` prefixes field names in errors (`rope_scaling.`). `read`: keys whose values were read, which tells those
    that nobody looked at; `objects`: the JSON objects within that were opened; `unstated`: facts that are needed to run
    a model and are not there, in the order in which they were missed."""

    content: Mapping[str, Any]
    file: str
    within: str = ""
    read: set[str] = field(default_factory=set, compare=False, repr=False)
    objects: dict[str, "Fields"] = field(default_factory=dict, compare=False, repr=False)
    unstated: dict[str, None] = field(default_factory=dict, compare=False, repr=False)

    def has(self, key: str) -> bool:
        """Whether `key` is there and not null."""
        return self.content.get(key) is not None

    def withholds(self, key: str) -> bool:
        """Whether `key`, on which no bytes and no FLOPs depend, is not there: then a model is planned with a stand-in,
        and not run, since `unstated` has it."""
        if self.has(key):
            return False
        self.unstated[key] = None
        return True

    def unread(self) -> Iterator[tuple["Fields", str]]:
        """Return keys with values that nobody read, here and in objects that were opened; those of ours (`_`) not."""
        for key, value in self.content.items():
            if key in self.objects:
                yield from self.objects[key].unread()
            elif value is not None and key not in self.read and not key.startswith("_"):
                yield self, key

    def settle(self) -> None:
        """Count all keys as read, here and in objects that were opened."""
        self.read.update(self.content)
        for inner in self.objects.values():
            inner.settle()

    def integer(self, key: str, default: int | None = None, low: int = 1, high: int = MAX_DIMENSION) -> int:
        """Return a whole number in [low, high]; required unless there is a default. Raises BadInputError."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "a whole number is expected", f"write one from {low} to {high}")
        if not low <= value <= high:
            raise self.wrong(key, f"must be from {low} to {high}", "correct the value")
        return value

    def real(self, key: str, default: float | None = None, high: float = 1e24) -> float:
        """Return a finite number in (0, high]; required unless there is a default. Raises BadInputError."""
        value = self._value(key, default)
        if not is_number(value):
            raise self.wrong(key, "a number is expected", "write a finite number without quotes")
        if not 0 < value <= high:
            raise self.wrong(key, f"must be above 0 and at most {high:g}", "correct the value")
        return float(value)

    def optional_real(self, key: str) -> float | None:
        """Return a number as `real` does, None where it is absent. Raises BadInputError."""
        return self.real(key) if self.has(key) else None

    def flag(self, key: str, default: bool) -> bool:
        """True or false. Raises BadInputError."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false is expected", "write true or false without quotes")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a non-empty string; required unless there is a default. Raises BadInputError."""
        value = self._value(key, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "a text is expected", "write it in quotes")
        return value

    def reals(self, key: str, length: int) -> tuple[float, ...]:
        """Exactly `length` positive numbers. Raises BadInputError."""
        value = self._value(key, None)
        if not isinstance(value, list) or not all(is_number(item) and 0 < item <= 1e24 for item in value):
            raise self.wrong(key, "a list of positive numbers is expected", "correct the list")
        if len(value) != length:
            raise self.wrong(key, f"{length} numbers are expected, not {len(value)}", "correct the list")
        return tuple(float(item) for item in value)

    def numbers(self, key: str, high: int, count: int | None = None) -> tuple[int, ...]:
        """Return a list of whole numbers in [0, high], `count` of them unless that is None; empty when absent.

        Raises BadInputError."""
        value = self._value(key, [])
        whole = isinstance(value, list) and all(type(item) is int and 0 <= item <= high for item in value)
        if not whole:
            raise self.wrong(key, f"a list of whole numbers from 0 to {high} is expected", "correct the list")
        if count is not None and len(value) not in (0, count):
            raise self.wrong(key, f"{count} numbers are expected, not {len(value)}", "correct the list")
        return tuple(value)

    def integers(self, key: str) -> tuple[int, ...]:
        """Return one non-negative whole number or a list of them; empty when absent. Raises BadInputError."""
        value = self._value(key, [])
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < MAX_DIMENSION:
                raise self.wrong(key, "token ids are expected", "write a whole number or a list of them")
        if len(items) > 64:
            raise self.wrong(key, "at most 64 token ids are expected", "shorten the list")
        return tuple(items)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; empty when absent. Raises BadInputError."""
        value = self._value(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "a list of texts is expected", "correct the list")
        return tuple(value)

    def inner(self, key: str) -> "Fields":
        """Return the JSON object under `key`. Raises BadInputError."""
        value = self._value(key, None)
        if not isinstance(value, Mapping):
            raise self.wrong(key, "a JSON object is expected", "correct the value")
        if key not in self.objects:
            self.objects[key] = Fields(value, self.file, f"{self.within}{key}.")
        return self.objects[key]

    def wrong(self, key: str, message: str, remedy: str) -> BadInputError:
        """Return the error that says what is wrong with `key`."""
        return BadInputError(
            message, file=self.file, field=self.within + key, value=self.content.get(key), remedy=remedy
        )

    def _value(self, key: str, default: Any) -> Any:
        self.read.add(key)
        value = self.content.get(key)
        if value is not None:
            return value
        if default is None:
            raise self.wrong(key, "missing", f"add {key}, as the model's original config.json has it")
        return default


def is_number(value: Any) -> bool:
    """Whether `value` is a finite int or float, not a boolean."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, int) or isfinite(value)
