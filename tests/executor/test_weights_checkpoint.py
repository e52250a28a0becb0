"""Reading checkpoints: every tensor of every family as the safetensors library reads it; bad files are errors."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from family_models import FAMILIES, family_model
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from shapes import small_model
from transformers import AutoConfig, AutoModelForCausalLM

from helmsman.executor.checkpoint.config import hf_config
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.hwdb.safetensors_file import SafetensorsFile
from helmsman.lowering.stored_names import stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

FUSED = {"q": (0, 256), "k": (256, 384), "v": (384, 512), "gate": (0, 640), "up": (640, 1280)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory per family and one sharded, written once; tests that damage files copy them."""
    root = tmp_path_factory.mktemp("checkpoints")
    for family in FAMILIES:
        write_checkpoint(family_model(family), root / family, seed=1)
    write_checkpoint(family_model("llama"), root / "sharded", seed=1, shard_size=500_000)
    return root


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(written / name, tmp_path / name))


@pytest.mark.parametrize("family", FAMILIES)
def test_stored_names_and_shapes_are_those_of_transformers(family: str) -> None:
    model = family_model(family)
    config = AutoConfig.for_model(**hf_config(model, "f32"))
    with torch.device("meta"):
        reference = AutoModelForCausalLM.from_config(config).state_dict()
    expected = {name: tuple(weight.shape) for name, weight in reference.items()}
    if model.head.tied:
        del expected["lm_head.weight"]
    assert {stored.name: stored.shape for stored in stored_tensors(model)} == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_is_what_the_library_reads(family: str, written: Path) -> None:
    model = family_model(family)
    library = load_file(written / family / "model.safetensors")
    checkpoint = Checkpoint.open(written / family, model)
    for stored in stored_tensors(model):
        expected = library[stored.name].view(torch.uint16).numpy()
        found = [checkpoint.tensor(part) for part in stored.parts]
        assert {fmt for fmt, _ in found} == {model.native_format}
        assert np.array_equal(np.concatenate([values[:].view(np.uint16) for _, values in found]), expected)


def test_fused_tensors_are_slices_of_rows(written: Path) -> None:
    model = family_model("phi3")
    library = load_file(written / "phi3" / "model.safetensors")
    checkpoint = Checkpoint.open(written / "phi3", model)
    for op, (first, last) in FUSED.items():
        name = "self_attn.qkv_proj" if op in "qkv" else "mlp.gate_up_proj"
        expected = library[f"model.layers.2.{name}.weight"][first:last].view(torch.uint16).numpy()
        assert np.array_equal(checkpoint.tensor(named(model, f"{op}.weight", 2))[1], expected)


def named(model: Model, name: str, layer: int | None = None) -> Tensor:
    return next(item for item in tensors(model) if (item.name, item.layer) == (name, layer))


def test_a_tied_head_is_the_embedding_and_views_are_read_only(written: Path) -> None:
    model = family_model("qwen3")
    checkpoint = Checkpoint.open(written / "qwen3", model)
    head, embedding = (checkpoint.tensor(named(model, name))[1] for name in ("head.weight", "embedding.weight"))
    assert head.shape == (1024, 256)
    assert np.array_equal(head, embedding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_formats_are_told_and_values_exact(dtype: torch.dtype, copy: Callable[[str], Path]) -> None:
    place, model = copy("qwen3"), family_model("qwen3")
    values = {key: value.to(dtype) for key, value in load_file(place / "model.safetensors").items()}
    save_file(values, place / "model.safetensors")
    fmt, found = Checkpoint.open(place, model).tensor(named(model, "embedding.weight"))
    assert fmt == {torch.float32: "f32", torch.float16: "f16"}[dtype]
    assert np.array_equal(found, values["model.embed_tokens.weight"].numpy())


def test_names_without_the_leading_model_are_found(copy: Callable[[str], Path]) -> None:
    place, model = copy("opt"), family_model("opt")
    values = load_file(place / "model.safetensors")
    save_file({key.removeprefix("model."): value for key, value in values.items()}, place / "model.safetensors")
    assert Checkpoint.open(place, model).tensor(named(model, "positions.weight"))[1].shape == (2050, 256)


def rewrite(place: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    values = load_file(place / "model.safetensors")
    change(values)
    save_file(values, place / "model.safetensors")


NORM = "model.layers.1.input_layernorm.weight"
CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "missing": (lambda v: v.pop(NORM), rf"{NORM}: missing: a tensor of shape \[256\] is expected"),
    "shape": (lambda v: v.update({NORM: v[NORM][:200].clone()}), rf"{NORM}: shape \[256\] expected \(got \[200\]\)"),
    "type": (lambda v: v.update({NORM: v[NORM].to(torch.float64)}), rf"{NORM}: data type .* expected \(got 'F64'\)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_models_tensors_are_refused(change: str, copy: Callable[[str], Path]) -> None:
    place = copy("llama")
    rewrite(place, CHANGES[change][0])
    with pytest.raises(BadInputError, match=CHANGES[change][1]) as error:
        Checkpoint.open(place, family_model("llama"))
    assert str(place) in str(error.value)
    assert "use the checkpoint of the plan's model" in str(error.value)


@pytest.mark.parametrize("keep", [0, 5, 8, 100, 0.5, -1])
def test_a_truncated_file_is_refused(keep: float, copy: Callable[[str], Path]) -> None:
    place = copy("llama")
    data = (place / "model.safetensors").read_bytes()
    end = int(keep * len(data)) if isinstance(keep, float) else keep
    (place / "model.safetensors").write_bytes(data[:end])
    with pytest.raises(BadInputError, match=r"model\.safetensors: .*truncated.*write or download it again"):
        Checkpoint.open(place, family_model("llama"))


def header_file(place: Path, header: bytes, length: int | None = None) -> None:
    size = len(header) if length is None else length
    (place / "model.safetensors").write_bytes(size.to_bytes(8, "little") + header + b"\0" * 64)


HEADERS: dict[str, tuple[bytes, str]] = {
    "not json": (b"{nonsense", "not valid JSON"),
    "list": (b"[]", "not a JSON object"),
    "deep": (b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", "nested deeper|not valid JSON"),
    "no offsets": (b'{"a":{"dtype":"F32","shape":[1]}}', "a: not a tensor's header"),
    "boolean": (b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}', "not a tensor's header"),
    "negative": (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}', "not a tensor's header"),
    "backwards": (b'{"a":{"dtype":"F64","shape":[1],"data_offsets":[8,0]}}', "do not match shape"),
    "beyond": (b'{"a":{"dtype":"F32","shape":[99],"data_offsets":[0,396]}}', "a: truncated: 4"),
    "size": (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', r"do not match shape \[2\] of F32"),
    "huge": (b'{"a":{"dtype":"F32","shape":[1152921504606846976,16],"data_offsets":[0,0]}}', "do not match"),
    "twice": (b'{"a":{},"a":{}}', "duplicate key 'a'"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_an_inconsistent_header_is_refused(case: str, copy: Callable[[str], Path]) -> None:
    place = copy("llama")
    header_file(place, HEADERS[case][0])
    with pytest.raises(BadInputError, match=HEADERS[case][1]) as error:
        Checkpoint.open(place, family_model("llama"))
    assert error.value.file == str(place / "model.safetensors")


ADJOINING = {
    "in order": ([(0, 8), (8, 16)], 16),
    "another order": ([(8, 16), (0, 8)], 16),
    "one empty": ([(0, 8), (8, 8), (8, 16)], 16),
    "overlapping": ([(0, 8), (4, 12)], 12),
    "twice the same": ([(0, 8), (0, 8)], 8),
    "a hole": ([(0, 8), (12, 20)], 20),
    "shifted": ([(4, 12)], 12),
    "trailing": ([(0, 8)], 12),
    "an extra one over all": ([(0, 8), (8, 16), (0, 16)], 16),
}


@pytest.mark.parametrize("case", ADJOINING)
def test_offsets_are_refused_where_the_library_refuses_them(case: str, tmp_path: Path) -> None:
    """Others would be read as tensors that they are not."""
    offsets, size = ADJOINING[case]
    named = {
        f"t{place}": {"dtype": "F32", "shape": [(end - start) // 4], "data_offsets": [start, end]}
        for place, (start, end) in enumerate(offsets)
    }
    text = json.dumps(named).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(size)))
    try:
        load_file(path)
    except SafetensorError:
        with pytest.raises(BadInputError, match=r"do not begin where|bytes behind the last"):
            SafetensorsFile(path)
    else:
        assert SafetensorsFile(path).entries.keys() == named.keys()
        assert case in {"in order", "another order", "one empty"}


@pytest.mark.parametrize("length", [2**63, 2**40, 10_000])
def test_a_header_length_beyond_the_file_is_refused(length: int, copy: Callable[[str], Path]) -> None:
    place = copy("llama")
    header_file(place, b"{}", length)
    with pytest.raises(BadInputError, match="truncated: its header does not fit"):
        Checkpoint.open(place, family_model("llama"))


def test_flipped_bits_are_an_error_or_another_value_never_a_crash(copy: Callable[[str], Path]) -> None:
    place, model = copy("qwen2"), family_model("qwen2")
    data = (place / "model.safetensors").read_bytes()
    generator, refused = random.Random(0), 0
    for _ in range(200):
        position = generator.randrange(8 + int.from_bytes(data[:8], "little"))
        patch(place, position, data[position] ^ 1 << generator.randrange(8))
        try:
            checkpoint = Checkpoint.open(place, model)
            assert all(checkpoint.tensor(item)[1].shape == item.shape for item in tensors(model))
        except BadInputError as error:
            refused += 1
            assert error.file is not None and error.file.startswith(str(place))
        patch(place, position, data[position])
    assert refused > 150


def patch(place: Path, position: int, value: int) -> None:
    with (place / "model.safetensors").open("r+b") as stream:
        stream.seek(position)
        stream.write(bytes([value]))


def test_values_at_odd_offsets_are_aligned(copy: Callable[[str], Path]) -> None:
    place, model = copy("qwen2"), family_model("qwen2")
    data = (place / "model.safetensors").read_bytes()
    before = Checkpoint.open(place, model).tensor(named(model, "q.bias", 1))[1][:]
    length = int.from_bytes(data[:8], "little") + 1
    shifted = length.to_bytes(8, "little") + data[8 : 7 + length] + b" " + data[7 + length :]
    (place / "model.safetensors").write_bytes(shifted)
    found = Checkpoint.open(place, model).tensor(named(model, "q.bias", 1))[1][:]
    assert found.flags.aligned
    assert np.array_equal(found, before)


INDEXES: dict[str, tuple[Any, str]] = {
    "no map": ({"metadata": {}}, "weight_map: an object of tensor name to file name"),
    "outside": ({"weight_map": {"a": "../llama/model.safetensors"}}, "weight_map: an object"),
    "number": ({"weight_map": {"a": 3}}, "weight_map: an object"),
    "no file": ({"weight_map": {"a": "absent.safetensors"}}, "absent.safetensors: cannot be read: No such file"),
    "not there": ({"weight_map": {"a": "model-00001-of-00006.safetensors"}}, "a: missing, although the index"),
    "list": ([], "weight_map: an object"),
}


@pytest.mark.parametrize("case", INDEXES)
def test_a_wrong_index_is_refused(case: str, copy: Callable[[str], Path]) -> None:
    place = copy("sharded")
    first = min(place.glob("model-00001-*.safetensors"))
    text = json.dumps(INDEXES[case][0]).replace("model-00001-of-00006.safetensors", first.name)
    (place / "model.safetensors.index.json").write_text(text)
    with pytest.raises(BadInputError, match=INDEXES[case][1]):
        Checkpoint.open(place, family_model("llama"))


def test_a_missing_shard_is_named(copy: Callable[[str], Path]) -> None:
    place = copy("sharded")
    last = max(place.glob("*.safetensors"))
    last.unlink()
    with pytest.raises(BadInputError, match=last.name):
        Checkpoint.open(place, family_model("llama"))


def test_pickled_weights_are_refused_and_no_weights_at_all(copy: Callable[[str], Path]) -> None:
    place = copy("llama")
    (place / "model.safetensors").unlink()
    with pytest.raises(BadInputError, match="neither model.safetensors nor .* found"):
        Checkpoint.open(place, family_model("llama"))
    (place / "pytorch_model.bin").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(BadInputError, match=r"pytorch_model\.bin: pickled weights are not read; convert it"):
        Checkpoint.open(place, family_model("llama"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("layers", 3), ("hidden", 128), ("kv_heads", 2), ("vocab", 2048), ("norm_eps", 1e-6), ("max_context", 4096)],
)
def test_a_plan_for_another_shape_is_refused_by_field(field: str, value: Any, written: Path) -> None:
    other = reshaped(family_model("llama"), **{field: value})
    with pytest.raises(BadInputError, match=rf"config\.json: {field}: the plan's model has {field} {value}"):
        Checkpoint.open(written / "llama", other)


def test_a_model_of_which_facts_are_unknown_is_not_run(written: Path) -> None:
    model = family_model("llama").model_copy(update={"unknown": ("rope_theta", "rms_norm_eps")})
    with pytest.raises(BadInputError, match="no source states what .* run .*rope_theta, rms_norm_eps"):
        Checkpoint.open(written / "llama", model)


def test_a_directory_without_config_or_without_existence_is_refused(copy: Callable[[str], Path]) -> None:
    place = copy("llama")
    (place / "config.json").unlink()
    for directory in (place, place / "absent"):
        with pytest.raises(BadInputError, match=r"config\.json: no such file"):
            Checkpoint.open(directory, family_model("llama"))


def test_rows_are_read_where_they_are_asked_for(written: Path) -> None:
    model = family_model("qwen3")
    _, rows = Checkpoint.open(written / "qwen3", model).tensor(named(model, "up.weight", 1))
    whole = rows[:]
    assert len(rows) == len(whole) == rows.shape[0] and rows.nbytes == whole.nbytes
    assert np.array_equal(rows[5:9], whole[5:9]) and rows[9:5].shape == (0, whole.shape[1])
    part = rows.part(16, 48)
    assert np.array_equal(part[:], whole[16:48]) and np.array_equal(part.part(3, 5)[1:], whole[20:21])
    with pytest.raises(ValueError, match="every 2th"):
        rows[::2]


def test_a_file_that_shrinks_after_it_was_opened_is_an_error(copy: Callable[[str], Path]) -> None:
    """Mapped, it would end the process with a signal."""
    place, model = copy("qwen3"), family_model("qwen3")
    checkpoint = Checkpoint.open(place, model)
    path = place / "model.safetensors"
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size - 1)
    last = max(tensors(model), key=lambda each: checkpoint.tensor(each)[1]._start)
    with pytest.raises(BadInputError, match="shorter than when it was opened") as caught:
        checkpoint.tensor(last)[1][:]
    assert caught.value.file == str(path) and caught.value.field == checkpoint.place(last)[1]


EXTRA: dict[str, tuple[str, str]] = {
    "a block beyond the last": ("llama", "model.layers.9.input_layernorm.weight"),
    "a bias that the config denies": ("llama", "model.layers.0.self_attn.q_proj.bias"),
    "something else": ("qwen3", "model.vision.patch.weight"),
}


@pytest.mark.parametrize("case", EXTRA)
def test_a_tensor_that_the_model_would_leave_out_is_refused(case: str, copy: Callable[[str], Path]) -> None:
    family, name = EXTRA[case]
    place = copy(family)
    rewrite(place, lambda values: values.update({name: torch.zeros(4)}))
    with pytest.raises(BadInputError) as caught:
        Checkpoint.open(place, family_model(family))
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["model.rotary_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.inv_freq"])
def test_what_models_compute_themselves_is_left_out(name: str, copy: Callable[[str], Path]) -> None:
    place = copy("llama")
    rewrite(place, lambda values: values.update({name: torch.zeros(4)}))
    Checkpoint.open(place, family_model("llama"))


@pytest.mark.parametrize("name", ["llama", "sharded"])
def test_fewer_blocks_than_the_weights_have_are_another_model(name: str, copy: Callable[[str], Path]) -> None:
    """For planning, too: config.json alone would be planned and run, with nonsense for an answer."""
    place = copy(name)
    config = json.loads((place / "config.json").read_text())
    layers = config["num_hidden_layers"]
    (place / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers - 1}))
    for spec in (place, place / "config.json"):
        with pytest.raises(BadInputError, match=f"tensor of block {layers - 1}") as caught:
            load_model(str(spec))
        assert (caught.value.field, caught.value.value) == ("num_hidden_layers", layers - 1)


def test_weights_that_are_not_there_yet_can_be_planned_for(copy: Callable[[str], Path]) -> None:
    place = copy("llama")
    (place / "model.safetensors").write_bytes(b"partial")
    assert load_model(str(place)).layers == family_model("llama").layers
    (place / "model.safetensors").unlink()
    assert load_model(str(place)).layers == family_model("llama").layers


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "model.safetensors.index.json"])
def test_a_pipe_in_a_directory_is_not_waited_for(name: str, tmp_path: Path) -> None:
    model = small_model("llama")
    write_checkpoint(model, tmp_path / "checkpoint", seed=1)
    pipe = tmp_path / "checkpoint" / name
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(BadInputError, match="it is not a file"):
        Checkpoint.open(tmp_path / "checkpoint", model)
    if name == "config.json":
        with pytest.raises(BadInputError, match="it is not a file"):
            load_model(str(tmp_path / "checkpoint"))
