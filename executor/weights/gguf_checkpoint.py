"""The weights of a model in GGUF files: rows in the order that Hugging Face's models compute with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.computed_values import by_token
from helmsman.executor.weights.file_rows import file_rows
from helmsman.executor.weights.gguf_file import GgufTensors
from helmsman.executor.weights.group_rows import GroupRows, expert_rows, latent_rows
from helmsman.executor.weights.plain_rows import PlainRows
from helmsman.executor.weights.stored_rows import JoinedRows, StoredRows
from helmsman.hwdb.gguf_files import model_of
from helmsman.hwdb.gguf_paths import gguf_files
from helmsman.lowering.stored_names import StoredTensor, gguf_name, part_with, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import FORMATS
from helmsman.schemas.model import Model

INTERLEAVED = ("granite", "granitehybrid", "granitemoe", "llama")
"""Architectures whose files hold the two halves of every head's rows of Q and K in turns."""

TILED = ("qwen35", "qwen35moe")
"""Architectures whose files have the first value heads of all key heads before their second ones."""

RATES = ("delta_rate.weight", "scan_rate.weight")
"""Tensors that checkpoints have as logarithms, and files as -exp of these."""


class GgufCheckpoint:
    """The weights of `model`, read one tensor at a time."""

    def __init__(self, model: Model, files: Sequence[GgufTensors]) -> None:
        """Find and check every tensor of `model`; nothing is read yet. Raises BadInputError naming file and tensor."""
        self.model = model
        architecture = files[0].header.metadata["general.architecture"]
        self._interleaved, self.tiled = architecture in INTERLEAVED, architecture in TILED
        by_name = {name: file for file in files for name in file.header.tensors}
        placed = stored_tensors(model, gguf_name, frozenset(by_name))
        self._stored: dict[Tensor, list[StoredTensor]] = {}
        for stored in placed:
            for part in stored.parts:
                self._stored.setdefault(part, []).append(stored)
        self._files = {stored.name: _file(stored, by_name, files) for stored in placed}
        embedding = placed[0].parts[0]
        self._tied = {} if not model.head.tied else {embedding.name: embedding}

    @classmethod
    def open(cls, path: Path, model: Model) -> "GgufCheckpoint":
        """The weights of `model` in the GGUF file (or the directory of its parts) at `path`.

        Raises BadInputError naming file and field: damaged files, another model's, types and models that are not
        covered."""
        files = [GgufTensors(part) for part in gguf_files(path)]
        check_agreement(model_of(files), model, str(path))
        return cls(model, files)

    def tensor(self, tensor: Tensor) -> tuple[str, StoredRows | JoinedRows | GroupRows]:
        """Format and rows of `tensor`: of its shape, bf16 as uint16; of a block format uint8 (rows, bytes per row), the
        file's own blocks. Of experts all rows of one follow those of another.

        Raises BadInputError where blocks of rows would have to become those of columns."""
        stored, file = self._find(tensor)
        if stored.pieces > 1:
            return self._of_pieces(tensor)
        fmt = file.checked(stored.name, stored.shape).type.name
        rows = file.rows(stored.name, stored.shape, self._head_dim(tensor))
        if stored.layout == "latent":
            _check_turns(stored, tensor, fmt, file)
            return fmt, latent_rows(stored.parts, tensor, rows)
        if tensor.stacked:
            return fmt, rows if len(stored.parts) == 1 else expert_rows(stored.parts, tensor, rows)
        if stored.layout == "heads":
            runs = file_rows(self.model, stored, tensor)
            assert runs is not None, "parts that take turns"
            return fmt, JoinedRows([rows.part(run.start, run.stop) for run in runs])
        first = stored.first_row(self._untied(tensor))
        return fmt, rows.part(first, first + tensor.shape[0])

    def _of_pieces(self, tensor: Tensor) -> tuple[str, JoinedRows]:
        """Return rows that are in several tensors of the file; as f32 where these have several formats."""
        formats, parts = list[str](), list[StoredRows]()
        for stored in self._stored[tensor]:
            file = self._files[stored.name]
            formats.append(file.checked(stored.name, stored.shape).type.name)
            parts.append(file.rows(stored.name, stored.shape))
        if len(set(formats)) == 1:
            return formats[0], JoinedRows(parts)
        read = zip(parts, formats, strict=True)
        return "f32", JoinedRows([PlainRows(rows, fmt, tensor.shape[-1]) for rows, fmt in read])

    def _head_dim(self, tensor: Tensor) -> int:
        """Return the rows of a head, where the two halves of these lie in turns; else 0."""
        attention = None if tensor.layer is None else self.model.attention(tensor.layer)
        turned = self._interleaved and tensor.op in ("q", "k") and attention is not None
        return attention.head_dim if turned and attention is not None else 0

    def computed(self, tensor: Tensor, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values of a vector as operations read them: files keep norms around one, and rates as what decays
        are multiplied by. Raises BadInputError for a rate that is not below 0."""
        if tensor.name not in RATES:
            return by_token(tensor, values)
        if not (values < 0).all():
            file, name = self.place(tensor)
            message, remedy = "a rate of decay that is not below 0", "convert the model again"
            raise BadInputError(message, file=file, field=name, value=float(values.max()), remedy=remedy)
        return np.log(-values)

    def place(self, tensor: Tensor, row: int = 0) -> tuple[str, str]:
        """The file that holds `tensor`, and its name there; of several, those that hold `row` of its rows."""
        stored = part_with(self._stored[self._untied(tensor)], row)
        return str(self._files[stored.name].path), stored.name

    def _find(self, tensor: Tensor) -> tuple[StoredTensor, GgufTensors]:
        stored = self._stored[self._untied(tensor)][0]
        return stored, self._files[stored.name]

    def _untied(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.tied_to is None else self._tied[tensor.tied_to]


def _check_turns(stored: StoredTensor, tensor: Tensor, fmt: str, file: GgufTensors) -> None:
    """Raise BadInputError for a matrix in blocks of which a part is read by columns."""
    if fmt not in FORMATS and tensor == stored.parts[0]:
        message = f"{fmt} blocks of rows, of which attention reads columns"
        remedy = "convert the model again: newer files keep attn_k_b and attn_v_b apart"
        raise BadInputError(message, file=str(file.path), field=stored.name, value=fmt, remedy=remedy)


def _file(stored: StoredTensor, by_name: dict[str, GgufTensors], files: Sequence[GgufTensors]) -> GgufTensors:
    file = by_name.get(stored.name)
    if file is None:
        message = f"missing: a tensor of shape {list(stored.shape)} is expected"
        remedy = "use the checkpoint of the plan's model"
        raise BadInputError(message, file=str(files[0].path), field=stored.name, remedy=remedy)
    file.checked(stored.name, stored.shape)
    return file
