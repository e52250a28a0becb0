"""Writing a random-weight GGUF file: streamed tensor by tensor, complete or not at all."""

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from helmsman.executor.checkpoint.blocks import formats_of, quantise
from helmsman.executor.checkpoint.config import text_alone
from helmsman.executor.checkpoint.gguf_factors import Runs, row_factors
from helmsman.executor.checkpoint.gguf_facts import ARCHITECTURES, architecture, facts, rope_tensors
from helmsman.executor.checkpoint.gguf_order import in_file_order
from helmsman.executor.checkpoint.hybrid_config import first_body
from helmsman.executor.checkpoint.random_values import encode, value_chunks
from helmsman.executor.checkpoint.weights_init import recipe
from helmsman.executor.checkpoint.write import WrittenCheckpoint, stream_name
from helmsman.executor.passes.model_check import check_native
from helmsman.executor.weights.computed_values import around_one
from helmsman.hwdb.gguf_header import DEFAULT_ALIGNMENT, MAGIC, VERSIONS
from helmsman.hwdb.gguf_types import BLOCK_TYPES
from helmsman.lowering.common_attention import latent_of
from helmsman.lowering.stored_names import StoredTensor, gguf_name, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.blocks.recurrent import StateSpace
from helmsman.schemas.errors import UsageError, unwritable
from helmsman.schemas.formats import Blocks, FileFormat, Format, Micro, is_plain
from helmsman.schemas.model import Model
from helmsman.schemas.write import whole_file

if TYPE_CHECKING:
    import numpy as np

_NUMBERS = {block_type.name: number for number, block_type in BLOCK_TYPES.items()}
_STRING = 8
_ARRAY = 9
_KINDS = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}
_ELEMENTS = {bool: (7, "?"), int: (5, "i")}
"""By type, the format's number and form of a value: alone, and in arrays."""


def write_gguf(
    model: Model, path: Path, seed: int = 0, fmt: FileFormat = "f16", progress: Callable[[int], None] | None = None
) -> WrittenCheckpoint:
    """Write `model` with random weights as one GGUF file: matrices as `fmt` says, vectors in f32.

    The values depend on seed and tensor, as in `write_checkpoint`; quantised ones are rounded from f32. At most one
    tensor is in memory. The file appears when it is complete. Raises UsageError when `path` is not writable or
    exists, the family has no GGUF form or a matrix no whole blocks; BadInputError for a model that kernels do not
    compute; HardwareUnavailableError on a full disk."""
    model = _checked(model)
    metadata = facts(model, fmt)
    stored = stored_tensors(model, gguf_name)
    formats = formats_of(model, stored, fmt)
    header = _header(model, stored, formats, metadata)
    sizes = {item.name: _size(item.shape, formats[item.name]) for item in stored}

    _make_place(path)
    with whole_file(path, len(header) + sum(sizes.values())) as stream:
        stream.write(header)
        for values in rope_tensors(model).values():
            _write_aligned(stream, iter([struct.pack(f"<{len(values)}f", *values)]))
        for item in stored:
            _write_aligned(stream, _told(_stored_bytes(model, item, formats[item.name], seed), progress))
    return WrittenCheckpoint(path, (path.name,), sum(sizes.values()), sum(prod(item.shape) for item in stored))


def write_outline(model: Model, path: Path, fmt: FileFormat) -> None:
    """Write a file with the header and the size of `write_gguf`'s, whose values were never written (a sparse file, of
    zeros): enough to plan with. Raises what `write_gguf` raises of families and formats."""
    model = _checked(model)
    metadata = facts(model, fmt)
    stored = stored_tensors(model, gguf_name)
    formats = formats_of(model, stored, fmt)
    with path.open("wb") as stream:
        stream.write(_header(model, stored, formats, metadata))
        for values in rope_tensors(model).values():
            _write_aligned(stream, iter([struct.pack(f"<{len(values)}f", *values)]))
        stream.truncate(stream.tell() + sum(_aligned(_size(item.shape, formats[item.name])) for item in stored))


def _checked(model: Model) -> Model:
    """Return the text model of a model that is written."""
    check_native(model, f"choose a model of the families {', '.join(ARCHITECTURES)}")
    alone = text_alone(model)
    architecture(alone)
    return alone


def _header(
    model: Model, stored: tuple[StoredTensor, ...], formats: Mapping[str, str], metadata: Mapping[str, Any]
) -> bytes:
    """Everything before the data, padded to its alignment."""
    factors = rope_tensors(model)
    shapes = {
        **{name: (len(values),) for name, values in factors.items()},
        **{s.name: _shape(model, s) for s in stored},
    }
    parts = [MAGIC, struct.pack("<IQQ", VERSIONS[-1], len(shapes), len(metadata))]
    parts += [_text(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    for name, shape in shapes.items():
        kind = formats.get(name, "f32")
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        parts.append(_text(name) + dimensions + struct.pack("<IQ", _NUMBERS[kind], offset))
        offset += _aligned(_size(shape, kind))
    content = b"".join(parts)
    return content.ljust(_aligned(len(content)), b"\0")


def _shape(model: Model, item: StoredTensor) -> tuple[int, ...]:
    """Return the shape in the file, which counts the heads of what every head of latent attention has, and the heads
    or groups of a state space's vectors; Kimi's taps and rates have dimensions of one."""
    part = item.parts[0]
    if model.family == "kimi_linear" and part.name in ("delta_conv.weight", "delta_rate.weight"):
        return (1, 1, *item.shape, 1) if len(item.shape) == 1 else (1, item.shape[0], 1, item.shape[1])
    if part.name in ("scan_rate.weight", "scan_pass.weight"):
        return *item.shape, 1
    if part.name == "scan_norm.weight":
        space = first_body(model, StateSpace)
        assert space is not None, "a model with its norm"
        return space.groups, space.inner // space.groups
    latent = latent_of(model, part.layer)
    if latent is None or part.op not in ("k_b", "v_b"):
        return item.shape
    rows, columns = item.shape
    return latent.heads, rows // latent.heads, columns


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, list):
        return struct.pack("<I", _ARRAY) + _array(value)
    number, form = _KINDS[type(value)]
    return struct.pack("<I", number) + struct.pack(form, value)


def _array(values: list[Any]) -> bytes:
    if not values or isinstance(values[0], str):
        return struct.pack("<IQ", _STRING, len(values)) + b"".join(map(_text, values))
    number, form = _ELEMENTS[type(values[0])]
    return struct.pack(f"<IQ{len(values)}{form}", number, len(values), *values)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _stored_bytes(
    model: Model, item: StoredTensor, fmt: Format | Blocks | Micro, seed: int
) -> "Iterator[np.ndarray[Any, Any]]":
    plain = fmt if is_plain(fmt) else "f32"
    for rows in in_file_order(model, architecture(model), item, partial(_drawn, model, plain, seed)):
        yield rows if is_plain(fmt) else quantise(rows, fmt)


def _drawn(model: Model, fmt: Format, seed: int, part: Tensor) -> "Iterator[np.ndarray[Any, Any]]":
    rows, columns = (*(part.shape[1:] if part.stacked else part.shape), 1)[:2]
    runs = row_factors(model, part)
    if runs is not None:
        exact = value_chunks(recipe(model, part), rows, columns, "f32", seed, stream_name(part))
        yield _multiplied(list(exact), runs, fmt)
        return
    for expert in range(part.shape[0]) if part.stacked else (None,):
        for chunk in value_chunks(recipe(model, part), rows, columns, fmt, seed, stream_name(part, expert)):
            yield around_one(model, part, chunk)


def _multiplied(chunks: "list[np.ndarray[Any, Any]]", runs: Runs, fmt: Format) -> "np.ndarray[Any, Any]":
    """Return rows of f32 times the factors of their runs, in `fmt`."""
    import numpy as np

    counts, factors = zip(*runs, strict=True)
    return encode(np.concatenate(chunks) * np.repeat(np.array(factors), counts)[:, None], fmt)


def _told(chunks: "Iterator[np.ndarray[Any, Any]]", progress: Callable[[int], None] | None) -> Iterator[memoryview]:
    for chunk in chunks:
        yield chunk.data
        if progress is not None:
            progress(chunk.nbytes)


def _write_aligned(stream: IO[bytes], chunks: Iterator[bytes | memoryview]) -> None:
    written = sum(stream.write(chunk) for chunk in chunks)
    stream.write(bytes(_aligned(written) - written))


def _size(shape: tuple[int, ...], fmt: str) -> int:
    return BLOCK_TYPES[_NUMBERS[fmt]].size(prod(shape))


def _aligned(size: int) -> int:
    return -(-size // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


def _make_place(path: Path) -> None:
    """The folder of a new file. Raises UsageError where there is one of that name."""
    try:
        if path.exists():
            raise UsageError("already exists", file=str(path), remedy="choose a new name")
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, str(path)) from None
