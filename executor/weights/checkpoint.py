"""A Hugging Face checkpoint directory: the tensors of a model, whichever files and fused tensors hold them."""

import re
from collections.abc import Iterable
from pathlib import Path

from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.stored_rows import JoinedRows, StoredRows
from helmsman.hwdb.safetensors_file import DTYPES, INDEX, SINGLE, SafetensorsFile, shards_of
from helmsman.lowering.stored_names import StoredTensor, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model
from helmsman.schemas.read import check_regular

NUMPY_DTYPES: dict[Format, str] = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}

_LEFT_OUT = re.compile(r"(?:.*\.)?(?:rotary_emb\.(?:inv_freq|cos_cached|sin_cached)|decoder\.version)")
"""Tensors that files of older libraries have, and models compute instead."""


class Checkpoint:
    """The weights of `model` in a directory, read one tensor at a time.

    `places` gives the file and the stored name of every tensor the model needs."""

    def __init__(self, model: Model, places: dict[str, tuple[SafetensorsFile, str]]) -> None:
        self.model = model
        self._places = places
        self._stored: dict[Tensor, list[StoredTensor]] = {}
        for stored in stored_tensors(model):
            for part in stored.parts:
                self._stored.setdefault(part, []).append(stored)
        embedding = stored_tensors(model)[0].parts[0]
        self._tied = {} if not model.head.tied else {embedding.name: embedding}

    @classmethod
    def open(cls, directory: Path, model: Model) -> "Checkpoint":
        """Find and check every tensor of `model` under `directory`; nothing is read yet.

        Raises BadInputError naming file, tensor, got and expected: another model's `config.json`, a missing,
        truncated or damaged file, a missing tensor, another shape or data type, one that the model would leave out,
        pickled weights."""
        check_config(directory, model)
        files = stored_files(directory)
        stored = stored_tensors(model)
        places = {item.name: _place(item, files, directory) for item in stored}
        for item in stored:
            file, name = places[item.name]
            file.checked(name, item.shape)
        _check_explained(files, (name for _, name in places.values()), model)
        return cls(model, places)

    def tensor(self, tensor: Tensor) -> tuple[Format, StoredRows | JoinedRows]:
        """Format and rows of `tensor`, of its shape; bf16 is given as uint16. A tied head is the embedding. Of experts
        all rows of one follow those of another.

        Raises BadInputError where experts are stored in several formats."""
        stored, file, name = self._find(tensor)
        if stored.expert is not None:
            return self._of_experts(tensor)
        first = stored.first_row(self._untied(tensor))
        fmt, rows = stored_rows(file, name, stored.shape)
        return fmt, rows.part(first, first + tensor.shape[0])

    def _of_experts(self, tensor: Tensor) -> tuple[Format, JoinedRows]:
        parts, formats = list[StoredRows](), list[Format]()
        for stored in self._stored[tensor]:
            file, name = self._places[stored.name]
            fmt, rows = stored_rows(file, name, stored.shape)
            parts.append(rows)
            formats.append(fmt)
            if fmt != formats[0]:
                message = f"experts of one layer in {formats[0]} and in {fmt}"
                raise BadInputError(message, file=str(file.path), field=name, remedy="convert them to one type")
        return formats[0], JoinedRows(parts)

    def place(self, tensor: Tensor) -> tuple[str, str]:
        """The file that holds `tensor`, and its name there."""
        _, file, name = self._find(tensor)
        return str(file.path), name

    def _find(self, tensor: Tensor) -> tuple[StoredTensor, SafetensorsFile, str]:
        stored = self._stored[self._untied(tensor)][0]
        return stored, *self._places[stored.name]

    def _untied(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.tied_to is None else self._tied[tensor.tied_to]


def check_config(directory: Path, model: Model) -> None:
    """Compare `config.json` with `model`. Raises BadInputError naming the first field that differs."""
    from helmsman.hwdb.load_model import load_model

    path = directory / "config.json"
    check_regular(path, "use the checkpoint of the plan's model")
    check_agreement(load_model(str(path)), model, str(path))


def stored_files(directory: Path) -> dict[str, SafetensorsFile]:
    """Stored name -> the open file that holds it. Raises BadInputError for a directory without sound weights."""
    if (directory / INDEX).exists():
        return _sharded(directory)
    if (directory / SINGLE).exists():
        file = SafetensorsFile(directory / SINGLE)
        return dict.fromkeys(file.entries, file)
    pickled = next(iter(sorted(directory.glob("*.bin"))), None)
    if pickled is not None:
        remedy = "convert it to safetensors (save_pretrained(..., safe_serialization=True))"
        raise BadInputError("pickled weights are not read", file=str(pickled), remedy=remedy)
    message = f"neither {SINGLE} nor {INDEX} found"
    raise BadInputError(message, file=str(directory), remedy="write one with helm-make-checkpoint")


def _sharded(directory: Path) -> dict[str, SafetensorsFile]:
    shard_of = shards_of(directory / INDEX)
    files = {shard: SafetensorsFile(directory / shard) for shard in sorted(set(shard_of.values()))}
    for name, shard in shard_of.items():
        if name not in files[shard].entries:
            message = "missing, although the index places it here"
            raise BadInputError(message, file=str(directory / shard), field=name, remedy="download it again")
    for shard, file in files.items():
        unnamed = next((name for name in file.entries if name not in shard_of), None)
        if unnamed is not None:
            message, remedy = "a tensor that the index does not name", "download it again"
            raise BadInputError(message, file=str(directory / shard), field=unnamed, remedy=remedy)
    return {name: files[shard] for name, shard in shard_of.items()}


def stored_rows(file: SafetensorsFile, name: str, expected: tuple[int, ...]) -> tuple[Format, StoredRows]:
    """Format and rows of a file's tensor; bf16 is given as uint16.

    Raises BadInputError when the stored type is not supported or the shape is not `expected`."""
    entry = file.checked(name, expected)
    fmt = DTYPES[entry.dtype]
    return fmt, StoredRows(file.bytes, name, entry.start, NUMPY_DTYPES[fmt], entry.shape)


def _check_explained(files: dict[str, SafetensorsFile], used: Iterable[str], model: Model) -> None:
    """That every tensor is one of the model's: with fewer blocks, or without its biases, it would be another model."""
    left = set(files).difference(used)
    if model.head.tied:
        left.discard("lm_head.weight")
    for name in sorted(left):
        if not _LEFT_OUT.fullmatch(name):
            message = f"a tensor that {model.name}, as config.json describes it, does not have"
            remedy = "use the config.json and the files of one model"
            raise BadInputError(message, file=str(files[name].path), field=name, remedy=remedy)


def _place(stored: StoredTensor, files: dict[str, SafetensorsFile], directory: Path) -> tuple[SafetensorsFile, str]:
    """Older files leave out the leading `model.`, which names the wrapped base model."""
    for name in (stored.name, stored.name.removeprefix("model.")):
        if name in files:
            return files[name], name
    message = f"missing: a tensor of shape {list(stored.shape)} is expected"
    remedy = "use the checkpoint of the plan's model"
    raise BadInputError(message, file=str(directory), field=stored.name, remedy=remedy)
