"""The weights of a model in GGUF files: rows in the order that Hugging Face's models compute with."""

from collections.abc import Sequence
from pathlib import Path

from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.gguf_file import GgufTensors
from helmsman.executor.weights.stored_rows import StoredRows
from helmsman.hwdb.gguf_files import gguf_files, model_of
from helmsman.lowering.stored_names import StoredTensor, gguf_name, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

INTERLEAVED = ("llama",)
"""Architectures whose files hold the two halves of every head's rows of Q and K in turns."""


class GgufCheckpoint:
    """The weights of `model`, read one tensor at a time."""

    def __init__(self, model: Model, files: Sequence[GgufTensors]) -> None:
        """Find and check every tensor of `model`; nothing is read yet. Raises BadInputError naming file and tensor."""
        self.model = model
        self._interleaved = files[0].header.metadata["general.architecture"] in INTERLEAVED
        by_name = {name: file for file in files for name in file.header.tensors}
        self._stored = {part: stored for stored in _stored(model) for part in stored.parts}
        self._files = {stored.name: _file(stored, by_name, files) for stored in _stored(model)}
        embedding = _stored(model)[0].parts[0]
        self._tied = {} if not model.head.tied else {embedding.name: embedding}

    @classmethod
    def open(cls, path: Path, model: Model) -> "GgufCheckpoint":
        """The weights of `model` in the GGUF file (or the directory of its parts) at `path`.

        Raises BadInputError naming file and field: damaged files, another model's, types that are not covered."""
        files = [GgufTensors(part) for part in gguf_files(path)]
        check_agreement(model_of(files), model, str(path))
        return cls(model, files)

    def tensor(self, tensor: Tensor) -> tuple[str, StoredRows]:
        """Format and rows of `tensor`: of its shape, bf16 as uint16; of a block format uint8 (rows, bytes per row), the
        file's own blocks."""
        stored, file = self._find(tensor)
        place = file.checked(stored.name, stored.shape)
        first = stored.first_row(self._untied(tensor))
        turned = self._interleaved and tensor.op in ("q", "k")
        rows = file.rows(stored.name, self.model.dense.head_dim if turned else 0)
        return place.type.name, rows.part(first, first + tensor.shape[0])

    def place(self, tensor: Tensor) -> tuple[str, str]:
        """The file that holds `tensor`, and its name there."""
        stored, file = self._find(tensor)
        return str(file.path), stored.name

    def _find(self, tensor: Tensor) -> tuple[StoredTensor, GgufTensors]:
        stored = self._stored[self._untied(tensor)]
        return stored, self._files[stored.name]

    def _untied(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.tied_to is None else self._tied[tensor.tied_to]


def _stored(model: Model) -> tuple[StoredTensor, ...]:
    return stored_tensors(model, gguf_name)


def _file(stored: StoredTensor, by_name: dict[str, GgufTensors], files: Sequence[GgufTensors]) -> GgufTensors:
    file = by_name.get(stored.name)
    if file is None:
        message = f"missing: a tensor of shape {list(stored.shape)} is expected"
        remedy = "use the checkpoint of the plan's model"
        raise BadInputError(message, file=str(files[0].path), field=stored.name, remedy=remedy)
    file.checked(stored.name, stored.shape)
    return file
