"""A Hugging Face checkpoint directory: the tensors of a model, whichever files and fused tensors hold them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.computed_values import around_one, by_token
from helmsman.executor.weights.file_rows import file_rows
from helmsman.executor.weights.group_rows import GroupRows, latent_rows
from helmsman.executor.weights.stored_rows import JoinedRows, StoredRows
from helmsman.executor.weights.turned_rows import TurnedRows, micro_rows, micro_shapes, turned_rows
from helmsman.hwdb.safetensors_file import DTYPES, INDEX, SINGLE, SafetensorsFile, shards_of
from helmsman.lowering.layer_cache import owner
from helmsman.lowering.stored_names import StoredTensor, file_name, part_with, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model
from helmsman.schemas.read import check_regular

NUMPY_DTYPES: dict[Format, str] = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}

_OF_LAYER = re.compile(r"model\.layers\.(\d+)\.")
"""The number of a block in a tensor's name."""

_LEFT_OUT = re.compile(r"(?:.*\.)?(?:rotary_emb\.(?:inv_freq|cos_cached|sin_cached)|decoder\.version)")
"""Tensors that files of older libraries have, and models compute instead."""


MICRO_BLOCKS, MICRO_SCALES = "_blocks", "_scales"
"""The ends of the names of MXFP4's codes, and of their scales."""

_APART = re.compile(
    r"(?:mtp|model\.visual|(?:model\.)?(?:vision_tower|mm_projector|multi_modal_projector|audio_tower|embed_vision|embed_audio))\..*"
)
"""Draft heads, and what sees images or hears: parts of released files that text does not go through."""

_OWN_CACHE = re.compile(r"(?:.*\.)?layers\.(\d+)\.self_attn\.(?:k_proj|v_proj|k_norm|v_norm)\.weight")
"""What only layers with a cache of their own compute; released files have some for the others too."""


class Checkpoint:
    """The weights of `model` in a directory, read one tensor at a time.

    `places` gives the file and the stored name of every tensor the model needs, `files` the file of every name."""

    tiled = False

    def __init__(
        self,
        model: Model,
        places: dict[str, tuple[SafetensorsFile, str]],
        stored: Sequence[StoredTensor],
        files: Mapping[str, SafetensorsFile],
    ) -> None:
        self.model = model
        self._places = places
        self._by_name = files
        self._stored: dict[Tensor, list[StoredTensor]] = {}
        for item in stored:
            for part in item.parts:
                self._stored.setdefault(part, []).append(item)
        embedding = stored[0].parts[0]
        self._tied = {} if not model.head.tied else {embedding.name: embedding}

    @classmethod
    def open(cls, directory: Path, model: Model) -> "Checkpoint":
        """Find and check every tensor of `model` under `directory`; nothing is read yet.

        Raises BadInputError naming file, tensor, got and expected: another model's `config.json`, a missing,
        truncated or damaged file, a missing tensor, another shape or data type, one that the model would leave out,
        pickled weights."""
        check_config(directory, model)
        files = stored_files(directory)
        stored = stored_tensors(model, file_name, frozenset(files))
        made, used = cls._checked(directory, model, stored, files)
        _check_explained(files, used, model)
        return made

    @classmethod
    def with_files(cls, directory: Path, model: Model, stored: Sequence[StoredTensor]) -> "Checkpoint":
        """Find and check `stored`, the tensors of a model that `config.json` describes in other words.

        Raises what `open` raises, but for another `config.json` and for tensors that are left out."""
        return cls._checked(directory, model, stored, stored_files(directory))[0]

    @classmethod
    def _checked(
        cls, directory: Path, model: Model, stored: Sequence[StoredTensor], files: dict[str, SafetensorsFile]
    ) -> "tuple[Checkpoint, tuple[str, ...]]":
        """Return the checkpoint, and the names of the file's tensors that it uses."""
        places = {item.name: _place(item, files, directory) for item in stored}
        beside = list[str]()
        for item in stored:
            file, name = places[item.name]
            if name.endswith(MICRO_BLOCKS):
                beside.append(_check_micro(item, files, name))
            else:
                file.checked(name, item.shape)
        return cls(model, places, stored, files), (*(name for _, name in places.values()), *beside)

    def tensor(self, tensor: Tensor) -> tuple[str, StoredRows | JoinedRows | TurnedRows | GroupRows]:
        """Format and rows of `tensor`, of its shape; bf16 is given as uint16, MXFP4 as uint8 (rows, bytes per row). A
        tied head is the embedding. Of experts all rows of one follow those of another.

        Raises BadInputError where parts of it are stored in several formats."""
        stored, file, name = self._find(tensor)
        if stored.expert is not None or stored.pieces > 1:
            return self._of_parts(tensor)
        if name.endswith(MICRO_BLOCKS):
            return "mxfp4", self._micro(stored, tensor, name)
        fmt, rows = stored_rows(file, name, stored.shape, vector=stored.form == "per-head")
        if stored.layout == "latent":
            return fmt, latent_rows(stored.parts, tensor, rows)
        turned = turned_rows(stored, tensor, rows)
        if turned is not None:
            return fmt, turned
        runs = file_rows(self.model, stored, tensor)
        if runs is not None:
            flat = rows.flat() if tensor.stacked else rows
            return fmt, JoinedRows([flat.part(run.start, run.stop) for run in runs])
        first = stored.first_row(self._untied(tensor))
        return fmt, rows.part(first, first + tensor.shape[0])

    def _of_parts(self, tensor: Tensor) -> tuple[Format, JoinedRows]:
        """Return rows that are in several tensors of the files: those of experts, or of pieces."""
        parts, formats = list[StoredRows](), list[Format]()
        for stored in self._stored[tensor]:
            file, name = self._places[stored.name]
            fmt, rows = stored_rows(file, name, stored.shape)
            parts.append(rows)
            formats.append(fmt)
            if fmt != formats[0]:
                message = f"parts of one matrix in {formats[0]} and in {fmt}"
                raise BadInputError(message, file=str(file.path), field=name, remedy="convert them to one type")
        return formats[0], JoinedRows(parts)

    def _micro(self, stored: StoredTensor, tensor: Tensor, name: str) -> TurnedRows:
        """Return experts in MXFP4, whose scales are a tensor beside their codes."""
        blocks, scales = map(self._bytes, (name, name.removesuffix(MICRO_BLOCKS) + MICRO_SCALES))
        return micro_rows(stored, tensor, blocks, scales)

    def _bytes(self, name: str) -> StoredRows:
        file = self._by_name[name]
        entry = file.entries[name]
        return StoredRows(file.bytes, name, entry.start, "u1", entry.shape)

    def computed(self, tensor: Tensor, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values of a vector as operations read them."""
        return around_one(self.model, tensor, by_token(tensor, values))

    def place(self, tensor: Tensor, row: int = 0) -> tuple[str, str]:
        """The file that holds `tensor`, and its name there; of several, those that hold `row` of its rows."""
        stored = part_with(self._stored[self._untied(tensor)], row)
        file, name = self._places[stored.name]
        return str(file.path), name

    def _find(self, tensor: Tensor) -> tuple[StoredTensor, SafetensorsFile, str]:
        stored = self._stored[self._untied(tensor)][0]
        return stored, *self._places[stored.name]

    def _untied(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.tied_to is None else self._tied[tensor.tied_to]


def _check_micro(stored: StoredTensor, files: Mapping[str, SafetensorsFile], name: str) -> str:
    """Check blocks of MXFP4 and their scales, whose name is returned. Raises BadInputError naming the first fault."""
    scales = name.removesuffix(MICRO_BLOCKS) + MICRO_SCALES
    for part, shape in zip((name, scales), micro_shapes(stored), strict=True):
        entry = files[part].entries[part] if part in files else None
        if entry is None or (entry.dtype, entry.shape) != ("U8", shape):
            got = None if entry is None else f"{list(entry.shape)} of {entry.dtype}"
            message, remedy = f"shape {list(shape)} of U8 expected", "use the checkpoint of the plan's model"
            raise BadInputError(message, file=str(files[name].path), field=part, value=got, remedy=remedy)
    return scales


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


def stored_rows(
    file: SafetensorsFile, name: str, expected: tuple[int, ...], vector: bool = False
) -> tuple[Format, StoredRows]:
    """Format and rows of a file's tensor; bf16 is given as uint16. `vector`: each of its values is a row.

    Raises BadInputError when the stored type is not supported or the shape is not `expected`."""
    entry = file.checked(name, expected)
    fmt = DTYPES[entry.dtype]
    shape = (prod(entry.shape),) if vector else entry.shape
    return fmt, StoredRows(file.bytes, name, entry.start, NUMPY_DTYPES[fmt], shape)


def _check_explained(files: dict[str, SafetensorsFile], used: Iterable[str], model: Model) -> None:
    """That every tensor is one of the model's: with fewer blocks, or without its biases, it would be another model."""
    left = set(files).difference(used)
    if model.head.tied:
        left.discard("lm_head.weight")
    for name in sorted(left):
        explained = _LEFT_OUT.fullmatch(name) or _APART.fullmatch(name) or _of_draft(name, model)
        explained = explained or _of_shared_cache(name, model)
        if not explained:
            message = f"a tensor that {model.name}, as config.json describes it, does not have"
            remedy = "use the config.json and the files of one model"
            raise BadInputError(message, file=str(files[name].path), field=name, remedy=remedy)


def _of_shared_cache(name: str, model: Model) -> bool:
    """Return whether a tensor makes keys or values of a layer that reads those of another."""
    layer = _OWN_CACHE.fullmatch(name)
    return layer is not None and int(layer[1]) < model.layers and owner(model, int(layer[1])) != int(layer[1])


def _of_draft(name: str, model: Model) -> bool:
    """Return whether a tensor is of the blocks behind the model's own that draft tokens, which no pass computes."""
    block = _OF_LAYER.match(name)
    return block is not None and 0 <= int(block[1]) - model.layers < sum(draft.count for draft in model.drafts)


def _place(stored: StoredTensor, files: dict[str, SafetensorsFile], directory: Path) -> tuple[SafetensorsFile, str]:
    """Older files leave out the leading `model.`, which names the wrapped base model."""
    own = (stored.name, stored.name + MICRO_BLOCKS)
    for name in (*own, *(name.removeprefix("model.") for name in own)):
        if name in files:
            return files[name], name
    message = f"missing: a tensor of shape {list(stored.shape)} is expected"
    remedy = "use the checkpoint of the plan's model"
    raise BadInputError(message, file=str(directory), field=stored.name, remedy=remedy)
