"""The weights of a draft head (MTP) in a checkpoint's directory, as those of a model of one block."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.executor.weights.group_rows import GroupRows
from helmsman.executor.weights.stored_rows import JoinedRows, StoredRows
from helmsman.executor.weights.turned_rows import TurnedRows
from helmsman.hwdb.gguf_paths import is_gguf
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.draft_head import OUTPUT_NORM, draft_head, joining_tensors, stored_with_draft, with_draft_block
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import output_tensors
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model

Stored = tuple[str, StoredRows | JoinedRows | TurnedRows | GroupRows]
"""Format and rows, as a checkpoint gives them."""

_FINAL = "final_norm.weight"


class DraftWeights:
    """Reads the tensors of a head: block 0 is the file's block behind the model's own, the final norm the head's;
    embedding and head are the model's."""

    tiled = False
    """Of delta rules, which no draft head has."""

    def __init__(self, model: Model, checkpoint: Checkpoint) -> None:
        self.model = model
        self._checkpoint = checkpoint
        self._beside = joining_tensors(model)
        self._final = next(norm for norm in output_tensors(model) if norm.name == _FINAL)

    @classmethod
    def open(cls, directory: Path, model: Model) -> "DraftWeights":
        """Find and check every tensor of the head of `model`.

        Raises BadInputError for a checkpoint without one, and what `Checkpoint.open` raises; UsageError for GGUF."""
        if is_gguf(directory):
            message, remedy = "draft heads of GGUF files are not run", "use a Hugging Face directory"
            raise UsageError(message, field="checkpoint", value=str(directory), remedy=remedy)
        _check_has_head(directory, model)
        return cls(model, Checkpoint.with_files(directory, with_draft_block(model), stored_with_draft(model)))

    def tensor(self, tensor: Tensor) -> Stored:
        """Format and rows of `tensor`."""
        return self._checkpoint.tensor(self._there(tensor))

    def computed(self, tensor: Tensor, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values of a vector as operations read them."""
        return self._checkpoint.computed(self._there(tensor), values)

    def place(self, tensor: Tensor, row: int = 0) -> tuple[str, str]:
        """The file that holds `tensor`, and its name there; of several, those that hold `row` of its rows."""
        return self._checkpoint.place(self._there(tensor), row)

    def beside(self, name: str) -> Stored:
        """Format and rows of what a head has beside its block, by its name in `lowering.draft_head`."""
        return self._checkpoint.tensor(self._beside[name])

    def computed_beside(self, name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values of one of the head's own norms as they multiply."""
        return self._checkpoint.computed(self._beside[name], values)

    def final_norm(self) -> Stored:
        """Format and rows of the model's own last norm."""
        return self._checkpoint.tensor(self._final)

    def computed_final(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values of the model's own last norm as they multiply."""
        return self._checkpoint.computed(self._final, values)

    def _there(self, tensor: Tensor) -> Tensor:
        """Return the tensor of the file's model that is `tensor` of the head's."""
        if tensor.name == _FINAL:
            return self._beside[OUTPUT_NORM]
        return tensor if tensor.layer is None else tensor._replace(layer=self.model.layers)


def _check_has_head(directory: Path, model: Model) -> None:
    """Raise BadInputError where the plan's model, or that of the files, has no draft head."""
    draft_head(model)
    stored = load_model(str(directory / "config.json"))
    if not stored.drafts:
        message, remedy = "this checkpoint has no draft head", "use one that has, or leave drafts out"
        file = str(directory / "config.json")
        raise BadInputError(message, file=file, field="num_nextn_predict_layers", value=0, remedy=remedy)
