"""What translations read: an architecture's metadata, the tensors of the file, and the contents of small ones."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from helmsman.hwdb.config_fields import MAX_DIMENSION, Fields
from helmsman.hwdb.gguf_header import Array, Header, TensorPlace, integers
from helmsman.schemas.errors import BadInputError

MAX_LAYERS = 1024
MAX_HEADS = 4096
MAX_CONTEXT = 2**28
_LONGEST_ARRAY = 2 * MAX_LAYERS
"""Values of an array of the metadata that are read at most: one per layer, and vocabularies are longer."""

Content = Callable[[str], bytes]
"""The bytes of a tensor, by name."""


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """Holds a file's header as a translation sees it: `fields` of its architecture, without prefix; `content` of small
    tensors.

    `layers`: blocks of the model itself; `drafts`: those behind them, which propose tokens (MTP)."""

    fields: Fields
    header: Header
    content: Content
    layers: int
    drafts: int

    @property
    def tensors(self) -> Mapping[str, TensorPlace]:
        """Return the tensors of the file."""
        return self.header.tensors

    def has_tensor(self, name: str, layer: int | None = None) -> bool:
        """Whether some block, or the one that is named, has a tensor `name`, which ends with its part (`.weight`)."""
        if layer is not None:
            return f"blk.{layer}.{name}" in self.tensors
        return any(f"blk.{number}.{name}" in self.tensors for number in range(self.layers))

    def per_layer(self, key: str, default: int | None = None, high: int = MAX_DIMENSION) -> tuple[int, ...]:
        """Return the number of every layer, 0 where it has none: one for all, or an array. Raises BadInputError."""
        if not isinstance(self.fields.content.get(key), list):
            return (self.fields.integer(key, default, low=0, high=high),) * self.layers
        numbers = self.fields.numbers(key, high)
        if len(numbers) not in (self.layers, self.layers + self.drafts):
            remedy = "the file is damaged: write or download it again"
            raise self.fields.wrong(key, f"{self.layers} numbers are expected, not {len(numbers)}", remedy)
        return numbers[: self.layers]

    def only(self, key: str, default: int | None = None, high: int = MAX_DIMENSION) -> int:
        """Return the one number above 0 that layers have. Raises BadInputError where they differ, or none has one."""
        numbers = {number for number in self.per_layer(key, default, high) if number}
        if len(numbers) != 1:
            message = "a number above 0 is expected" if not numbers else "not covered: layers that differ"
            raise self.fields.wrong(key, message, "choose another model")
        return numbers.pop()

    def flags(self, key: str) -> tuple[bool, ...]:
        """Return a truth of every layer, from an array. Raises BadInputError."""
        return tuple(number != 0 for number in self.per_layer(key, high=1))

    def missing(self, name: str) -> BadInputError:
        """Return the error that says that the file lacks a tensor."""
        remedy = "name the file (or the first of several) that has the weights"
        return BadInputError("missing", file=self.header.file, field=name, remedy=remedy)


def architecture_fields(header: Header, data: bytes, architecture: str) -> Fields:
    """Return the metadata of an architecture without its prefix; short arrays of whole numbers as lists, other arrays
    as texts that say how long they are."""
    prefix = f"{architecture}."
    own = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
    shown = {
        key: _listed(header, data, prefix + key, value) if isinstance(value, Array) else value
        for key, value in own.items()
    }
    return Fields(shown, header.file, prefix)


def _listed(header: Header, data: bytes, key: str, array: Array) -> list[int] | str:
    if array.count > _LONGEST_ARRAY or array.end > len(data):
        return f"an array of {array.count}"
    try:
        return list(integers(data, array, header.file, key))
    except BadInputError:
        return f"an array of {array.count}"


def block_number(name: str) -> int | None:
    """Return the block of a tensor, None for one outside of blocks."""
    block = re.match(r"blk\.(0|[1-9][0-9]{0,8})\.", name)
    return int(block[1]) if block is not None else None
