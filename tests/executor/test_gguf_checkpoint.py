"""GGUF files: every tensor as the Hugging Face checkpoint of the same seed has it; bad files are errors."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from family_models import family_model
from gguf_bytes import gguf, u32

from helmsman.executor.checkpoint.blocks import formats_of, quantise
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.homes.store import as_f32
from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.executor.weights.gguf_checkpoint import GgufCheckpoint
from helmsman.executor.weights.opening import Weights, open_weights
from helmsman.hwdb.gguf_header import Header, read_header
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.stored_names import gguf_name, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import FileFormat, is_plain

IN_GGUF = ("llama", "mistral", "phi3", "qwen2", "qwen3")
Written = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The GGUF file of a family in a format, or (`hf`) its f32 directory."""
    root, found = tmp_path_factory.mktemp("gguf"), {}

    def get(family: str, fmt: str) -> Path:
        place = root / f"{family}-{fmt}{'' if fmt == 'hf' else '.gguf'}"
        if place not in found:
            model = family_model(family)
            found[place] = write_checkpoint(model, place, 1, "f32") if fmt == "hf" else write_gguf(model, place, 1, fmt)
        return place

    return get


def values(weights: Weights, tensor: Tensor) -> np.ndarray:
    fmt, found = weights.tensor(tensor)
    assert fmt in ("f32", "f16", "bf16")
    return as_f32(fmt, found[:])


@pytest.mark.parametrize("family", IN_GGUF)
def test_every_tensor_is_that_of_the_directory(family: str, written: Written) -> None:
    model = family_model(family)
    file, directory = open_weights(written(family, "f32"), model), open_weights(written(family, "hf"), model)
    assert isinstance(file, GgufCheckpoint) and isinstance(directory, Checkpoint)
    for tensor in tensors(model):
        found = values(file, tensor)
        assert found.shape == tensor.shape and np.array_equal(found, values(directory, tensor)), tensor
        _, rows = file.tensor(tensor)
        assert np.array_equal(np.concatenate([rows[:3], rows[3:37], rows[37:]]), found), "rows of heads in turns, too"


@pytest.mark.parametrize("family", ["llama", "phi3", "qwen3"])
@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "q4_k_m"])
def test_blocks_come_as_they_are_row_by_row(family: str, fmt: FileFormat, written: Written) -> None:
    """Q and K rows of llama are interleaved in the file: quantised rows move whole."""
    model = family_model(family)
    formats = formats_of(model, stored_tensors(model, gguf_name), fmt)
    embedding = tensors(model)[0]
    if fmt == "q4_k_m":
        assert set(formats.values()) == {"f32", "q4_k", "q6_k", "q8_0"}
    file, directory = open_weights(written(family, fmt), model), open_weights(written(family, "hf"), model)
    for tensor in tensors(model):
        plain, (found, blocks) = values(directory, tensor), file.tensor(tensor)
        if len(tensor.shape) == 2:
            kept = formats[gguf_name(model.family, embedding if tensor.tied_to else tensor)]
            assert found == kept and not is_plain(kept), tensor
            assert np.array_equal(blocks, quantise(plain, kept)), tensor
        else:
            assert found == "f32" and np.array_equal(blocks, plain)


@pytest.mark.parametrize("fmt", ["f16", "bf16"])
def test_sixteen_bits_are_those_of_the_directory(fmt: str, written: Written, tmp_path: Path) -> None:
    model = family_model("qwen2")
    write_checkpoint(model, tmp_path / "hf", 1, "f16" if fmt == "f16" else "bf16")
    file, directory = open_weights(written("qwen2", fmt), model), open_weights(tmp_path / "hf", model)
    for tensor in (tensor for tensor in tensors(model) if len(tensor.shape) == 2):
        found = file.tensor(tensor)
        assert found[0] == fmt and np.array_equal(found[1], directory.tensor(tensor)[1])


@pytest.mark.parametrize("family", IN_GGUF)
def test_the_file_describes_its_model(family: str, written: Written) -> None:
    model = family_model(family)
    found = load_model(str(written(family, "f16")))
    check_agreement(found, model, "f")
    check_agreement(model, found, "f")
    assert (found.name, found.eos) == (model.name, model.eos)
    assert found.family == ("llama" if family == "mistral" else family) and found.native_format == "f16"


def spoilt(place: Path, target: Path, change: Callable[[bytes, Header], bytes]) -> Path:
    data = place.read_bytes()
    target.write_bytes(change(data, read_header(data, "f")))
    return target


def renamed(before: str, after: str) -> Callable[[bytes, Header], bytes]:
    assert len(before) == len(after)
    return lambda data, header: data.replace(before.encode(), after.encode(), 1)


def patched(name: str, offset: int, form: str, value: int) -> Callable[[bytes, Header], bytes]:
    """Writes `value` at `offset` bytes behind the first place of `name`."""

    def change(data: bytes, header: Header) -> bytes:
        place = data.index(name.encode()) + len(name) + offset
        return data[:place] + struct.pack(form, value) + data[place + struct.calcsize(form) :]

    return change


WRONG = {
    "beyond": (renamed("blk.1.attn_q.weight", "blk.9.attn_q.weight"), "blk.9.attn_q.weight: a tensor of a block"),
    "unknown": (renamed("blk.1.attn_q.weight", "blk.1.attn_w.weight"), "blk.1.attn_w.weight: not covered"),
    "type": (patched("blk.1.attn_q.weight", 20, "<I", 20), "data type .* expected .got 'iq4_nl'"),
    "shape": (patched("blk.1.attn_q.weight", 4, "<Q", 128), r"shape \[512, 256\] expected"),
    "architecture": (renamed("general.architecture", "general.architectuse"), "general.architecture: not covered"),
    "heads": (patched("qwen2.attention.head_count", 4, "<I", 0), "head_count: must be from 1"),
    "fewer layers": (patched("qwen2.block_count", 4, "<I", 3), "beyond the 3 of block_count"),
    "more layers": (patched("qwen2.block_count", 4, "<I", 5), "layers"),
    "eps": (patched("qwen2.attention.layer_norm_rms_epsilon", 4, "<I", 0x7FC00000), "a number is expected"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_another_model_is_refused_by_name(case: str, written: Written, tmp_path: Path) -> None:
    place = spoilt(written("qwen2", "q4_0"), tmp_path / "spoilt.gguf", WRONG[case][0])
    with pytest.raises(BadInputError, match=WRONG[case][1]) as error:
        open_weights(place, family_model("qwen2"))
    assert error.value.file == str(place) and error.value.remedy


@pytest.mark.parametrize("times", [80, pytest.param(200, marks=pytest.mark.nightly)])
def test_a_damaged_header_is_an_error_or_the_same_weights(written: Written, tmp_path: Path, times: int) -> None:
    """Metadata, names, shapes and offsets in turn; the file never crashes what reads it."""
    model, place = family_model("qwen2"), tmp_path / "damaged.gguf"
    data = bytearray(written("qwen2", "q4_0").read_bytes())
    end = min(tensor.start for tensor in read_header(bytes(data), "f").tensors.values())
    # The vocabulary is most of a header and no matter of weights: half of the places are among the tensors.
    first = data.index(b"token_embd.weight")
    generator, refused = random.Random(0), 0
    for number in range(times):
        begin = generator.randrange(first, end) if number % 2 else generator.randrange(end)
        width = 1 if number % 4 < 2 else generator.randrange(2, 17)
        before = bytes(data[begin : begin + width])
        data[begin : begin + width] = generator.randbytes(len(before))
        place.write_bytes(data)
        try:
            found = open_weights(place, model)
            assert all(len(found.tensor(tensor)[1]) == tensor.shape[0] for tensor in tensors(model))
        except BadInputError as error:
            refused += 1
            assert error.file == str(place)
        data[begin : begin + len(before)] = before
    assert refused > 0.4 * times


def split(place: Path, folder: Path) -> list[Path]:
    """The file in three: metadata alone, and every other tensor in one of two."""
    data = place.read_bytes()
    header = read_header(data, "f")
    start = data.index(b"token_embd.weight") - 8
    pairs = data[24:start]
    count = int.from_bytes(data[16:24], "little")
    parts = [b"GGUF" + struct.pack("<IQQ", 3, 0, count) + pairs]
    for half in (0, 1):
        names = [name for number, name in enumerate(header.tensors) if number % 2 == half]
        infos, content = [], b""
        for name in names:
            found = header.tensors[name]
            begin = data.index(struct.pack("<Q", len(name)) + name.encode())
            old = data[begin : begin + 8 + len(name) + 4 + 8 * len(found.shape) + 4]
            infos.append(old + struct.pack("<Q", len(content)))
            content += data[found.start : found.end] + bytes(-found.end % 32)
        parts.append(gguf({"split.no": u32(half + 1)}, infos, 0) + content)
    paths = [folder / f"m-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    return paths


def test_a_model_in_several_files(written: Written, tmp_path: Path) -> None:
    model, whole = family_model("llama"), written("llama", "q8_0")
    paths = split(whole, tmp_path)
    expected = open_weights(whole, model)
    for place in (tmp_path, paths[0], paths[2]):
        found = open_weights(place, model)
        for tensor in tensors(model):
            assert np.array_equal(found.tensor(tensor)[1], expected.tensor(tensor)[1])
        assert load_model(str(place)).layers == model.layers
    paths[1].write_bytes(paths[2].read_bytes())
    with pytest.raises(BadInputError, match="another part has this tensor too"):
        open_weights(tmp_path, model)
    paths[1].unlink()
    with pytest.raises(BadInputError, match="m-00002-of-00003.gguf: a part of the model is missing"):
        open_weights(tmp_path, model)


def test_which_of_several_models_must_be_said(written: Written, tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(written("qwen3", "q4_0").read_bytes())
    with pytest.raises(BadInputError, match="more than one model is here"):
        open_weights(tmp_path, family_model("qwen3"))
    assert open_weights(tmp_path / "b.gguf", family_model("qwen3")).tensor(tensors(family_model("qwen3"))[0])


def test_what_gguf_cannot_hold_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no architecture for this family"):
        write_gguf(family_model("opt"), tmp_path / "m.gguf")
    odd = reshaped(family_model("qwen2"), ffn=650)
    with pytest.raises(UsageError, match="rows of 650 values, and blocks have 32"):
        write_gguf(odd, tmp_path / "m.gguf", fmt="q4_0")
    (tmp_path / "there.gguf").write_bytes(b"mine")
    with pytest.raises(UsageError, match="already exists"):
        write_gguf(family_model("qwen2"), tmp_path / "there.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["there.gguf"]


def test_a_block_beyond_those_that_the_file_says_it_has_is_refused(written: Written, tmp_path: Path) -> None:
    data = written("llama", "f32").read_bytes()
    key = b"llama.block_count"
    at = data.index(key) + len(key) + 4
    layers = struct.unpack_from("<I", data, at)[0]
    path = tmp_path / "fewer.gguf"
    path.write_bytes(data[:at] + struct.pack("<I", layers - 1) + data[at + 4 :])
    with pytest.raises(BadInputError, match=f"beyond the {layers - 1} of block_count") as caught:
        load_model(str(path))
    assert caught.value.field is not None and caught.value.field.startswith(f"blk.{layers - 1}.")


def test_a_file_that_shrinks_after_it_was_opened_is_an_error(written: Written, tmp_path: Path) -> None:
    model, path = family_model("llama"), tmp_path / "shrinks.gguf"
    path.write_bytes(written("llama", "f32").read_bytes())
    weights = open_weights(path, model)
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size // 2)
    with pytest.raises(BadInputError, match="shorter than when it was opened"):
        for tensor in tensors(model):
            values(weights, tensor)


def test_a_header_that_is_longer_than_what_is_read_first_is_read_on(written: Written, monkeypatch) -> None:
    found = load_model(str(written("llama", "f32")))
    monkeypatch.setattr("helmsman.hwdb.gguf_files.FIRST_READ", 16)
    assert load_model(str(written("llama", "f32"))) == found
