"""A Hugging Face checkpoint directory: the tensors of a model, whichever files and fused tensors hold them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.names import Stored, stored_tensors
from helmsman.executor.weights.safetensors_file import SafetensorsFile
from helmsman.lowering.tensors import Tensor
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model
from helmsman.schemas.read import JSON_LIMIT, parse_json, read_bytes

if TYPE_CHECKING:
    import numpy as np

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class Checkpoint:
    """The weights of `model` in a directory, read one tensor at a time.

    `places` gives the file and the stored name of every tensor the model needs."""

    def __init__(self, model: Model, places: dict[str, tuple[SafetensorsFile, str]]) -> None:
        self.model = model
        self._places = places
        self._stored = {part: stored for stored in stored_tensors(model) for part in stored.parts}
        embedding = stored_tensors(model)[0].parts[0]
        self._tied = {} if not model.tied_embeddings else {embedding.name: embedding}

    @classmethod
    def open(cls, directory: Path, model: Model) -> "Checkpoint":
        """Find and check every tensor of `model` under `directory`; nothing is read yet.

        Raises BadInputError naming file, tensor, got and expected: another model's `config.json`, a missing,
        truncated or damaged file, a missing tensor, another shape or data type, pickled weights."""
        check_config(directory, model)
        files = stored_files(directory)
        stored = stored_tensors(model)
        places = {item.name: _place(item, files, directory) for item in stored}
        for item in stored:
            file, name = places[item.name]
            file.checked(name, item.shape)
        return cls(model, places)

    def tensor(self, tensor: Tensor) -> "tuple[Format, np.ndarray[Any, Any]]":
        """Format and read-only values of `tensor`, of its shape; bf16 is given as uint16.

        A tied head is the embedding. The view borrows the file's mapping; see `release`."""
        stored, file, name = self._find(tensor)
        fmt, values = file.array(name, stored.shape)
        first = stored.first_row(self._untied(tensor))
        return fmt, values[first : first + tensor.shape[0]]

    def release(self, tensor: Tensor) -> None:
        """Drop the pages that hold `tensor` (and what is fused with it) from memory once it has been used."""
        _, file, name = self._find(tensor)
        file.release(name)

    def _find(self, tensor: Tensor) -> tuple[Stored, SafetensorsFile, str]:
        stored = self._stored[self._untied(tensor)]
        return stored, *self._places[stored.name]

    def _untied(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.tied_to is None else self._tied[tensor.tied_to]


def check_config(directory: Path, model: Model) -> None:
    """Compare `config.json` with `model`. Raises BadInputError naming the first field that differs."""
    from helmsman.hwdb.load_model import load_model

    config = str(directory / "config.json")
    check_agreement(load_model(config), model, config)


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
    index = directory / INDEX
    content = parse_json(read_bytes(index, JSON_LIMIT), str(index))
    shard_of = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shard_of, dict) or not all(_is_file_name(shard) for shard in shard_of.values()):
        message = "an object of tensor name to file name in the same directory is expected"
        raise BadInputError(message, file=str(index), field="weight_map", remedy="download it again")
    files = {shard: SafetensorsFile(directory / shard) for shard in sorted(set(shard_of.values()))}
    for name, shard in shard_of.items():
        if name not in files[shard].entries:
            message = "missing, although the index places it here"
            raise BadInputError(message, file=str(directory / shard), field=name, remedy="download it again")
    return {name: files[shard] for name, shard in shard_of.items()}


def _is_file_name(shard: object) -> bool:
    return isinstance(shard, str) and shard not in ("", ".", "..") and not {"/", "\\", "\0"} & set(shard)


def _place(stored: Stored, files: dict[str, SafetensorsFile], directory: Path) -> tuple[SafetensorsFile, str]:
    """Older files leave out the leading `model.`, which names the wrapped base model."""
    for name in (stored.name, stored.name.removeprefix("model.")):
        if name in files:
            return files[name], name
    message = f"missing: a tensor of shape {list(stored.shape)} is expected"
    remedy = "use the checkpoint of the plan's model"
    raise BadInputError(message, file=str(directory), field=stored.name, remedy=remedy)
