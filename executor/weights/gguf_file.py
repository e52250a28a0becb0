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

    def rows(self, name: str, expected: tuple[int, ...], head_dim: int = 0) -> StoredRows:
        """The rows of a tensor of the shape `expected` (`checked`), all those of one expert or head after those of
        another: its values, bf16 as uint16; of a block format uint8 (rows, bytes per row), the blocks of every row one
        after the other. `head_dim`: of rows that lie interleaved."""
        place, columns = self.header.tensors[name], expected[-1]
        plain = place.type.name in FORMATS
        dtype = _NUMPY_DTYPES[place.type.name] if plain else "u1"
        width = columns if plain else place.type.size(columns)
        shape = (prod(expected[:-1]), width) if len(expected) > 1 else (width,)
        return StoredRows(self.bytes, name, place.start, dtype, shape, head_dim)

    def checked(self, name: str, expected: tuple[int, ...]) -> TensorPlace:
        """The place of `name`, if its type can be used and its shape is `expected`; a matrix may be that of several
        heads, counted first, a row of one a vector, and a vector that of several heads. Raises BadInputError."""
        place = self.header.tensors[name]
        flat = place.shape
        if len(expected) < 3:
            flat = (prod(flat[:-1]), flat[-1]) if len(expected) == 2 else (place.elements,)
        if flat != expected:
            raise self._wrong(name, f"shape {list(expected)} expected", list(place.shape), _OTHER)
        allowed = READ if len(expected) > 1 else FORMATS
        if place.type.name not in allowed:
            remedy = f"quantise the model again, to {' or '.join(BLOCKS)}"
            raise self._wrong(name, f"data type {', '.join(allowed)} expected", place.type.name, remedy)
        return place

    def _wrong(self, name: str, message: str, got: object, remedy: str) -> BadInputError:
        return BadInputError(message, file=str(self.path), field=name, value=got, remedy=remedy)


_OTHER = "use the checkpoint of the plan's model"
