"""Writing a random-weight checkpoint: streamed tensor by tensor, complete or not at all."""

import errno
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from helmsman.executor.checkpoint.config import hf_config, token_ids
from helmsman.executor.checkpoint.random_values import value_chunks
from helmsman.executor.checkpoint.shards import Shard, divide, header, index
from helmsman.executor.checkpoint.tokenizer import tokenizer_config_json, tokenizer_json
from helmsman.executor.checkpoint.weights_init import recipe
from helmsman.executor.executed import NATIVE, check_native
from helmsman.executor.weights.names import Stored, stored_tensors
from helmsman.lowering.tensors import Tensor
from helmsman.schemas.errors import UsageError, unwritable
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model

DEFAULT_SHARD = 2 * 10**9


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: `files` in the directory, `weight_bytes` of tensors, `parameters` they hold."""

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
) -> Written:
    """Write `model` with random weights in `fmt` (default: its native format) as a Hugging Face directory.

    The values depend on seed, tensor and format only. At most a few rows are in memory; `progress` is told the
    bytes of each. Everything goes to a hidden directory beside `directory`, which is renamed at the end.
    Raises UsageError for a family without kernels and when `directory` is not empty or not writable,
    HardwareUnavailableError on a full disk."""
    check_native(model, f"choose a model of the families {', '.join(NATIVE)}")
    fmt = fmt or model.native_format
    shards = divide(stored_tensors(model), fmt, shard_size)
    weight_bytes = sum(shard.size for shard in shards)
    texts = _texts(model, fmt, shards)
    with _complete_or_nothing(directory, weight_bytes) as place:
        for name, text in texts.items():
            (place / name).write_text(text + "\n", encoding="utf-8")
        for shard in shards:
            _write_shard(place / shard.name, shard, model, fmt, seed, progress or (lambda size: None))
    parameters = sum(part.elements for shard in shards for item in shard.stored for part in item.parts)
    files = (*texts, *(shard.name for shard in shards))
    return Written(directory, tuple(sorted(files)), weight_bytes, parameters)


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
    with path.open("wb") as stream:
        stream.write(header(shard, fmt))
        for stored in shard.stored:
            _write_tensor(stream, stored, model, fmt, seed, progress)


def _write_tensor(
    stream: IO[bytes], stored: Stored, model: Model, fmt: Format, seed: int, progress: Callable[[int], None]
) -> None:
    for part in stored.parts:
        rows, columns = (*part.shape, 1)[:2]
        for chunk in value_chunks(recipe(model, part), rows, columns, fmt, seed, stream_name(part)):
            stream.write(chunk.data)
            progress(chunk.nbytes)


def stream_name(tensor: Tensor) -> str:
    """What selects a tensor's random values, beside the seed."""
    return tensor.name if tensor.layer is None else f"{tensor.layer}.{tensor.name}"


@contextmanager
def _complete_or_nothing(directory: Path, size: int) -> Iterator[Path]:
    """A temporary directory that becomes `directory` when the block ends well, and vanishes otherwise."""
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            remedy = "choose a new or empty directory"
            raise UsageError("already exists and is not an empty directory", file=str(directory), remedy=remedy)
        directory.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            check_room(place, size)
            yield place
            place.chmod(0o755)
            place.rename(directory)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise unwritable(error, str(directory)) from None


def check_room(place: Path, size: int) -> None:
    """Raise OSError where `size` bytes do not fit."""
    if shutil.disk_usage(place).free < size:
        raise OSError(errno.ENOSPC, "no space left on device")
