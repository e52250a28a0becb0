"""Any checkpoint as what loading reads."""

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.executor.weights.gguf_checkpoint import GgufCheckpoint
from helmsman.executor.weights.group_rows import GroupRows
from helmsman.executor.weights.stored_rows import JoinedRows, StoredRows
from helmsman.executor.weights.turned_rows import TurnedRows
from helmsman.hwdb.gguf_paths import is_gguf
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.model import Model


class Weights(Protocol):
    """The weights of a model, read one tensor at a time.

    `tiled`: whether of delta rules the first value heads of all key heads precede their second ones; else all value
    heads of a key head follow each other."""

    tiled: bool

    def tensor(self, tensor: Tensor) -> tuple[str, StoredRows | JoinedRows | TurnedRows | GroupRows]:
        """Format and rows of `tensor`: of its shape, bf16 as uint16; of GGUF's block formats uint8 (rows, bytes per
        row), row-major blocks."""

    def computed(self, tensor: Tensor, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return f32 values of a vector, as the file has them, as operations read them."""

    def place(self, tensor: Tensor, row: int = 0) -> tuple[str, str]:
        """The file that holds `tensor`, and its name there; of several, those that hold `row` of its rows."""


def open_weights(path: Path, model: Model) -> Weights:
    """The weights of `model` at `path`: a Hugging Face directory, a GGUF file or a directory of its parts.

    Raises BadInputError naming file and field for whatever is missing, damaged or of another model."""
    return GgufCheckpoint.open(path, model) if is_gguf(path) else Checkpoint.open(path, model)
