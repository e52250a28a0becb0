"""The tensors of one GGUF file as rows."""

from math import prod

from helmsman.executor.weights.stored_rows import StoredRows
from helmsman.hwdb.gguf_files import GgufFile
from helmsman.hwdb.gguf_header import TensorPlace
from helmsman.hwdb.gguf_types import READ
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import BLOCKS, FORMATS

_NUMPY_DTYPES = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}


class GgufTensors(GgufFile):
    """An open file whose header was checked; values are read when they are needed."""

    def rows(self, name: str, head_dim: int = 0) -> StoredRows:
        """The rows of a tensor: its values in its shape, bf16 as uint16; of a block format uint8 (rows, bytes per
        row), the blocks of every row one after the other. `head_dim`: of rows that lie interleaved."""
        place = self.header.tensors[name]
        if place.type.name in FORMATS:
            dtype = _NUMPY_DTYPES[place.type.name]
            return StoredRows(self.bytes, name, place.start, dtype, place.shape, head_dim)
        row = place.type.size(place.shape[-1])
        return StoredRows(self.bytes, name, place.start, "u1", (prod(place.shape[:-1]), row), head_dim)

    def checked(self, name: str, expected: tuple[int, ...]) -> TensorPlace:
        """The place of `name`, if its type can be used and its shape is `expected`. Raises BadInputError."""
        place = self.header.tensors[name]
        if place.shape != expected:
            raise self._wrong(name, f"shape {list(expected)} expected", list(place.shape), _OTHER)
        allowed = READ if len(expected) == 2 else FORMATS
        if place.type.name not in allowed:
            remedy = f"quantise the model again, to {' or '.join(BLOCKS)}"
            raise self._wrong(name, f"data type {', '.join(allowed)} expected", place.type.name, remedy)
        return place

    def _wrong(self, name: str, message: str, got: object, remedy: str) -> BadInputError:
        return BadInputError(message, file=str(self.path), field=name, value=got, remedy=remedy)


_OTHER = "use the checkpoint of the plan's model"
