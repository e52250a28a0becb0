"""The tensors of one GGUF file as arrays."""

import mmap
from math import prod
from typing import TYPE_CHECKING, Any

from helmsman.hwdb.gguf_files import GgufFile
from helmsman.hwdb.gguf_header import TensorPlace
from helmsman.hwdb.gguf_types import PLAIN, READ
from helmsman.schemas.errors import BadInputError

if TYPE_CHECKING:
    import numpy as np

_NUMPY_DTYPES = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}


class GgufTensors(GgufFile):
    """A memory-mapped file whose header was checked; values are views of the mapping."""

    def array(self, name: str) -> "np.ndarray[Any, Any]":
        """A read-only view of a tensor: its values in its shape, bf16 as uint16; of a block format uint8 (rows, bytes
        per row), the blocks of every row one after the other."""
        import numpy as np

        place = self.header.tensors[name]
        if place.type.name in PLAIN:
            dtype = _NUMPY_DTYPES[place.type.name]
            return np.frombuffer(self.data, dtype, prod(place.shape), place.start).reshape(place.shape)
        row = place.type.size(place.shape[-1])
        return np.frombuffer(self.data, np.uint8, place.end - place.start, place.start).reshape(-1, row)

    def checked(self, name: str, expected: tuple[int, ...]) -> TensorPlace:
        """The place of `name`, if its type can be used and its shape is `expected`. Raises BadInputError."""
        place = self.header.tensors[name]
        if place.shape != expected:
            raise self._wrong(name, f"shape {list(expected)} expected", list(place.shape), _OTHER)
        allowed = READ if len(expected) == 2 else PLAIN
        if place.type.name not in allowed:
            remedy = f"quantise the model again, to {' or '.join(READ[len(PLAIN) :])}"
            raise self._wrong(name, f"data type {', '.join(allowed)} expected", place.type.name, remedy)
        return place

    def release(self, name: str) -> None:
        """Let the system take back the memory that holds this tensor's pages; they can be read again."""
        place = self.header.tensors[name]
        first = place.start - place.start % mmap.PAGESIZE
        self.data.madvise(mmap.MADV_DONTNEED, first, place.end - first)

    def _wrong(self, name: str, message: str, got: object, remedy: str) -> BadInputError:
        return BadInputError(message, file=str(self.path), field=name, value=got, remedy=remedy)


_OTHER = "use the checkpoint of the plan's model"
