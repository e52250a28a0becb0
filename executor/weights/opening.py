"""Any checkpoint as what loading reads."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.executor.weights.gguf_checkpoint import GgufCheckpoint
from helmsman.hwdb.gguf_files import is_gguf
from helmsman.lowering.tensors import Tensor
from helmsman.schemas.model import Model

if TYPE_CHECKING:
    import numpy as np


class Weights(Protocol):
    """The weights of a model, read one tensor at a time."""

    def tensor(self, tensor: Tensor) -> "tuple[str, np.ndarray[Any, Any]]":
        """Format and read-only values of `tensor`: of its shape, bf16 as uint16; of GGUF's block formats uint8 (rows,
        bytes per row), row-major blocks."""

    def release(self, tensor: Tensor) -> None:
        """Drop what holds `tensor` from memory; it can be read again."""


def open_weights(path: Path, model: Model) -> Weights:
    """The weights of `model` at `path`: a Hugging Face directory, a GGUF file or a directory of its parts.

    Raises BadInputError naming file and field for whatever is missing, damaged or of another model."""
    return GgufCheckpoint.open(path, model) if is_gguf(path) else Checkpoint.open(path, model)
