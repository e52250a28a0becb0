"""Accounts for keys: each key of a config was read, is known to be without effect on inference, or is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.known_keys import MULTIMODAL, ONE_VALUE, WITHOUT_EFFECT
from helmsman.hwdb.configs.parts.config import Config
from helmsman.schemas.errors import BadInputError

_IN_ROTATION = frozenset({"rope_type", "type", "finetuned"})
"""Keys of a rotation that may stand in both of its objects, of which one is read."""


_AT_EITHER_LEVEL = frozenset({"architectures", "dtype", "eos_token_id", "torch_dtype"})
"""Keys that a file and its text model may both state, of which one is read."""


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """Holds keys that a family's reader leaves: `without_effect` at any value, `one_value` at one of some values."""

    without_effect: frozenset[str] = frozenset()
    one_value: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


def check_keys(config: Config, known: KnownKeys) -> None:
    """Raise BadInputError for the first key that nobody read and that may have an effect."""
    ours, every = known.without_effect | WITHOUT_EFFECT | _AT_EITHER_LEVEL, {**ONE_VALUE, **known.one_value}
    for fields, key in config.whole.unread():
        if key in ours or (fields is config.whole is not config.fields and key in MULTIMODAL):
            continue
        if "rope_" in fields.within and key in _IN_ROTATION:
            continue
        if not (fields is config.fields or fields is config.whole) or key not in every:
            raise _unknown(fields, key, config.family)
        if fields.content[key] not in every[key]:
            raise _uncovered(fields, key, config.family, every[key])


def _unknown(fields: Fields, key: str, family: str) -> BadInputError:
    remedy = "remove it if it does not change what the model computes"
    return fields.wrong(key, f"a key that is not known in the family {family}", remedy)


def _uncovered(fields: Fields, key: str, family: str, values: tuple[Any, ...]) -> BadInputError:
    remedy = f"covered: {', '.join(map(str, values))}" if values else "choose another model"
    return fields.wrong(key, f"not covered: {key} in the family {family}", remedy)
