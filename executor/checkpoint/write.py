"""Writing a random-weight checkpoint: streamed tensor by tensor, complete or not at all."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from helmsman.executor.checkpoint.config import hf_config, text_alone, token_ids
from helmsman.executor.checkpoint.random_values import value_chunks
from helmsman.executor.checkpoint.shards import Shard, divide, header, index
from helmsman.executor.checkpoint.tokenizer import tokenizer_config_json, tokenizer_json
from helmsman.executor.checkpoint.weights_init import recipe
from helmsman.executor.passes.draft_check import DRAFTING
from helmsman.executor.passes.model_check import NATIVE, check_native
from helmsman.lowering.draft_head import stored_with_draft, with_draft_block
from helmsman.lowering.stored_names import StoredTensor, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model
from helmsman.schemas.write import new_file, whole_folder

if TYPE_CHECKING:
    import numpy as np

DEFAULT_SHARD = 2 * 10**9


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """The checkpoint that was written: `files` in the directory, `weight_bytes` of tensors, `parameters` they hold."""

    directory: Path
    files: tuple[str, ...]
    weight_bytes: int
    parameters: int


def write_checkpoint(
    model: Model,
    directory: Path,
    seed: int = 0,
    fmt: Format | None = None,
    shard_size: int = DEFAULT_SHARD,
    progress: Callable[[int], None] | None = None,
) -> WrittenCheckpoint:
    """Write `model` with random weights in `fmt` (default: its native format) as a Hugging Face directory.

    The values depend on seed, tensor and format only. At most a few rows are in memory; `progress` is told the
    bytes of each.
    Raises UsageError for a family without kernels and when `directory` is not empty or not writable, BadInputError for
    a model that kernels do not compute, HardwareUnavailableError on a full disk."""
    check_native(model, f"choose a model of the families {', '.join(NATIVE)}")
    model = text_alone(model)
    fmt = fmt or model.native_format
    drafts = model.drafts and model.family in DRAFTING
    stored = stored_with_draft(model) if drafts else stored_tensors(model)
    described = with_draft_block(model) if drafts else model
    shards = divide(stored, fmt, shard_size)
    weight_bytes = sum(shard.size for shard in shards)
    texts = _texts(model, fmt, shards)
    with whole_folder(directory, weight_bytes) as place:
        for name, text in texts.items():
            with new_file(place / name) as stream:
                stream.write(f"{text}\n".encode())
        for shard in shards:
            _write_shard(place / shard.name, shard, described, fmt, seed, progress or (lambda size: None))
    parameters = sum(prod(item.shape) for shard in shards for item in shard.stored)
    files = (*texts, *(shard.name for shard in shards))
    return WrittenCheckpoint(directory, tuple(sorted(files)), weight_bytes, parameters)


def _texts(model: Model, fmt: Format, shards: tuple[Shard, ...]) -> dict[str, str]:
    texts = {
        "config.json": json.dumps(hf_config(model, fmt), indent=1),
        "generation_config.json": json.dumps({"do_sample": False, **token_ids(model)}, indent=1),
        "tokenizer.json": tokenizer_json(model),
        "tokenizer_config.json": tokenizer_config_json(model),
    }
    if len(shards) > 1:
        texts["model.safetensors.index.json"] = json.dumps(index(shards), indent=1)
    return texts


def _write_shard(
    path: Path, shard: Shard, model: Model, fmt: Format, seed: int, progress: Callable[[int], None]
) -> None:
    with new_file(path) as stream:
        stream.write(header(shard, fmt))
        for stored in shard.stored:
            _write_tensor(stream, stored, model, fmt, seed, progress)


def _write_tensor(
    stream: IO[bytes], stored: StoredTensor, model: Model, fmt: Format, seed: int, progress: Callable[[int], None]
) -> None:
    if stored.layout == "latent":
        values = latent_values(model, stored, fmt, seed)
        stream.write(values.data)
        progress(values.nbytes)
        return
    for part in stored.parts:
        rows, columns = _drawn(part, stored.expert)
        chunks = value_chunks(recipe(model, part), rows, columns, fmt, seed, stream_name(part, stored.expert))
        for chunk in piece_of(stored, chunks):
            stream.write(chunk.data)
            progress(chunk.nbytes)


def piece_of(stored: StoredTensor, chunks: "Iterable[np.ndarray[Any, Any]]") -> "Iterator[np.ndarray[Any, Any]]":
    """Yield the rows of a tensor of ours that are in one of the file's, of chunks of all its rows."""
    if stored.pieces == 1:
        yield from chunks
        return
    first, begin = 0, stored.piece * stored.shape[0]
    for chunk in chunks:
        own = chunk[max(0, begin - first) : max(0, begin + stored.shape[0] - first)]
        if len(own):
            yield own
        first += len(chunk)


def _drawn(part: Tensor, expert: int | None) -> tuple[int, int]:
    """Return how many rows of how many values are drawn: experts that are stacked in the file's own order."""
    shape = part.shape if expert is None else part.shape[1:]
    return (shape[0], 1) if len(shape) == 1 else (prod(shape[:-1]), shape[-1])


def latent_values(model: Model, stored: StoredTensor, fmt: Format, seed: int) -> "np.ndarray[Any, Any]":
    """Return the two matrices that every head of latent attention has, those of one head after those of another."""
    import numpy as np

    def drawn(part: Tensor) -> "np.ndarray[Any, Any]":
        rows, columns = part.shape
        return np.concatenate(list(value_chunks(recipe(model, part), rows, columns, fmt, seed, stream_name(part))))

    keys, values = map(drawn, stored.parts)
    latent = values.shape[1]
    heads = len(keys) // latent
    expanding = keys.reshape(heads, latent, -1).swapaxes(1, 2)
    return np.concatenate([expanding, values.reshape(heads, -1, latent)], 1).reshape(stored.shape)


def stream_name(tensor: Tensor, expert: int | None = None) -> str:
    """Return the name that selects a tensor's random values, or those of one of its experts, beside the seed."""
    name = tensor.name if tensor.layer is None else f"{tensor.layer}.{tensor.name}"
    return name if expert is None else f"{name}.{expert}"
