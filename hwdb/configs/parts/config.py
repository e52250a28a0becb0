"""Holds a `config.json` as readers of families see it: the fields of its text model, and of the file around them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from helmsman.hwdb.config_fields import Fields

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Config:
    """Holds a config: `fields` of the text model, `whole` of the file; both are one where there is no `text_config`.

    `family`: the file's model type; `name`: what the model is called."""

    fields: Fields
    whole: Fields
    family: str
    name: str

    def holder(self, key: str) -> Fields:
        """Return the level that states a key, the file's before the text model's."""
        return self.whole if self.whole.has(key) else self.fields

    def agreed(self, key: str, read: Callable[[Fields], T]) -> T:
        """Return a value that may stand at either level. Raises BadInputError where the two differ."""
        value = read(self.holder(key))
        if (
            self.whole is not self.fields
            and self.whole.has(key)
            and self.fields.has(key)
            and read(self.fields) != value
        ):
            raise self.fields.wrong(key, f"differs from {key} of the whole model", "correct one of the two")
        return value
