"""Reading one field of a `config.json`: type and range checked, every failure names file, field, value and remedy."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from helmsman.schemas.errors import BadInputError

MAX_DIMENSION = 2**24


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object of a config; `null` counts as absent, as in Hugging Face's config classes.

    `within` prefixes field names in errors (`rope_scaling.`)."""

    content: Mapping[str, Any]
    file: str
    within: str = ""

    def has(self, key: str) -> bool:
        """Whether `key` is there and not null."""
        return self.content.get(key) is not None

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

    def integers(self, key: str) -> tuple[int, ...]:
        """Return one non-negative whole number or a list of them; empty when absent. Raises BadInputError."""
        value = self.content.get(key)
        items = value if isinstance(value, list) else [] if value is None else [value]
        for item in items:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < MAX_DIMENSION:
                raise self.wrong(key, "token ids are expected", "write a whole number or a list of them")
        if len(items) > 64:
            raise self.wrong(key, "at most 64 token ids are expected", "shorten the list")
        return tuple(items)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; empty when absent. Raises BadInputError."""
        value = self.content.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "a list of texts is expected", "correct the list")
        return tuple(value)

    def inner(self, key: str) -> "Fields":
        """Return the JSON object under `key`. Raises BadInputError."""
        value = self._value(key, None)
        if not isinstance(value, Mapping):
            raise self.wrong(key, "a JSON object is expected", "correct the value")
        return Fields(value, self.file, f"{self.within}{key}.")

    def wrong(self, key: str, message: str, remedy: str) -> BadInputError:
        """Return the error that says what is wrong with `key`."""
        return BadInputError(
            message, file=self.file, field=self.within + key, value=self.content.get(key), remedy=remedy
        )

    def _value(self, key: str, default: Any) -> Any:
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
