"""Formats of files: every tensor of a GGUF file by its type, those of several tensors, and types that only planning
knows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from gguf_headers import header_bytes
from gguf_metadata import metadata
from plans import make_hardware
from tiny_configs import TINY
from together import together

from helmsman.executor.passes.plan_check import check_executed
from helmsman.executor.weights.gguf_file import GgufTensors
from helmsman.hwdb.gguf_types import BLOCK_TYPES
from helmsman.hwdb.load_model import load_model
from helmsman.hwdb.model_names import stated_format
from helmsman.lowering.rules import homes
from helmsman.lowering.stored_names import gguf_name, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.planner.decide import decide
from helmsman.planner.file_formats import file_formats, resolve_formats
from helmsman.planner.read_request import request_from
from helmsman.planner.tensor_formats import weights_size
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import FORMAT_FACTS, OTHER_BLOCKS, runs
from helmsman.schemas.model import Model

WIDE: dict[str, Any] = {
    **TINY["qwen3_moe"],
    "hidden_size": 256,
    "moe_intermediate_size": 256,
    "num_attention_heads": 8,
}
"""A model whose rows are whole blocks of every type."""

_NUMBERS = {block_type.name: number for number, block_type in BLOCK_TYPES.items()}
_MIX = {"experts_gate": "iq3_xxs", "experts_up": "iq3_xxs", "experts_down": "q4_k", "v": "q8_0", "head": "q6_k"}


def written(tmp_path: Path, config: Mapping[str, Any], types: Mapping[str, str], others: str) -> tuple[Path, Model]:
    """A GGUF file without values: matrices in the type that `types` has for their operation, or in `others`."""
    from helmsman.hwdb.model_config import model_from_config

    model = model_from_config(config, "wide", "config.json")
    shapes, kinds = [], {}
    for stored in stored_tensors(model, gguf_name):
        shapes.append((stored.name, stored.shape))
        part = stored.parts[-1]
        if part.quantised:
            kinds[stored.name] = _NUMBERS[types.get(part.op, others)]
    content, size = header_bytes(metadata(config), shapes, kinds)
    path = tmp_path / "wide.gguf"
    with path.open("wb") as file:
        file.write(content)
        file.truncate(size)
    return path, load_model(str(path))


def file_bytes(path: Path, model: Model) -> dict[tuple[str, int | None], int]:
    """Bytes of each of our tensors that the file has as they are."""
    opened = GgufTensors(path)
    places = opened.header.tensors
    opened.close()
    return {
        (stored.parts[0].name, stored.parts[0].layer): places[stored.name].end - places[stored.name].start
        for stored in stored_tensors(model, gguf_name)
        if len(stored.parts) == 1
    }


def test_every_tensor_of_a_mixed_file_takes_the_files_bytes(tmp_path: Path) -> None:
    """Vectors and routers are f32 in the file, and where most weights are quantised."""
    path, model = written(tmp_path, WIDE, _MIX, "q5_k")
    most, formats = resolve_formats(None, str(path), model)
    assert most == "iq3_xxs" and {"iq3_xxs", "q4_k", "q5_k", "q6_k", "q8_0"} == set(formats.values())

    def planned(tensor: Tensor) -> int:
        return tensor.size(formats.get((tensor.name, tensor.layer), most))

    sizes = {(tensor.name, tensor.layer): planned(tensor) for tensor in tensors(model) if tensor.tied_to is None}
    assert sizes == file_bytes(path, model)


def test_a_plan_keeps_experts_apart_from_dense_weights(tmp_path: Path) -> None:
    path, model = written(tmp_path, WIDE, _MIX, "q5_k")
    question = {"model": str(path), "hardware": make_hardware(), "strategy": "layer-split"}
    plan = decide(request_from({**question, "prompt_tokens": 8, "output_tokens": 8})).plan
    kept = {tensor.name: {piece.rule.format for piece in homes(plan, tensor)} for tensor in tensors(plan.model)}
    assert kept["experts_gate.weight"] == {"iq3_xxs"} and kept["experts_down.weight"] == {"q4_k"}
    assert kept["q.weight"] == {"q5_k"} and kept["v.weight"] == {"q8_0"} and kept["router.weight"] == {"f32"}
    assert sum(use.weights for use in plan.predicted.memory) == sum(file_bytes(path, model).values())


@pytest.mark.parametrize("fmt", [*OTHER_BLOCKS, "q8_0", "q4_0", "q4_k", "q6_k"])
def test_a_file_of_any_type_is_planned_in_it(fmt: str, tmp_path: Path) -> None:
    path, model = written(tmp_path, WIDE, {}, fmt)
    assert resolve_formats(None, str(path), model) == (fmt, {})


@together("fmt", OTHER_BLOCKS)
def test_blocks_have_the_bytes_of_files(fmt: str) -> None:
    facts = next(facts for name, facts in FORMAT_FACTS.items() if name == fmt)
    block_type = BLOCK_TYPES[_NUMBERS[fmt]]
    assert block_type.bytes * facts.values == facts.size * block_type.values


@pytest.mark.parametrize("fmt", [fmt for fmt in OTHER_BLOCKS if not runs(fmt)])
def test_what_nothing_multiplies_is_refused_where_weights_are_read(fmt: str, tmp_path: Path) -> None:
    path, _ = written(tmp_path, WIDE, {}, fmt)
    file = GgufTensors(path)
    with pytest.raises(BadInputError, match="quantise the model again, to q8_0") as caught:
        file.checked("blk.0.attn_q.weight", (256, 256))
    file.close()
    assert caught.value.value == fmt


def test_a_tensor_that_a_file_has_in_several_types_is_planned_in_the_widest(tmp_path: Path) -> None:
    """Kimi's queries, keys and values are three tensors of a file and one of ours."""
    config = {**TINY["kimi_linear"], "hidden_size": 256}
    path, model = written(tmp_path, config, {"delta_in": "q8_0"}, "f16")
    content = path.read_bytes()
    name = b"blk.0.attn_k.weight"
    at = content.index(name) + len(name) + 4 + 2 * 8
    path.write_bytes(content[:at] + _NUMBERS["q4_0"].to_bytes(4, "little") + content[at + 4 :])
    assert file_formats(path, model)["delta_in.weight", 0] == "q8_0"
    path.write_bytes(content[:at] + _NUMBERS["i8"].to_bytes(4, "little") + content[at + 4 :])
    with pytest.raises(BadInputError, match="a type that is not read"):
        file_formats(path, model)


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    path, model = written(tmp_path, WIDE, {}, "q8_0")
    wider = model.model_copy(update={"vocab": 128})
    with pytest.raises(BadInputError, match="a tensor of 32768 values is expected"):
        file_formats(path, wider)


def test_native_formats_are_those_of_files(tmp_path: Path) -> None:
    model = load_model("Qwen3-0.6B")
    with pytest.raises(UsageError, match="name a format"):
        resolve_formats("native", "Qwen3-0.6B", model)
    with pytest.raises(BadInputError, match="no weights are here"):
        resolve_formats("native", str(tmp_path), model)
    assert resolve_formats(None, str(tmp_path), model) == ("f16", {})


def _write_weights(folder: Path, tensors_of: Iterable[tuple[str, str, Sequence[int], int]]) -> int:
    """Write a safetensors file without values and return the bytes of its tensors: name, type, shape, bytes of a value
    of each."""
    header, end = {}, 0
    for name, dtype, shape, size in tensors_of:
        start, end = end, end + prod(shape) * size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    content = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        file.truncate(8 + len(content) + end)
    return end


def _write_checkpoint(folder: Path, config: Mapping[str, Any], dtype: str, size: int) -> None:
    """Write a checkpoint without values whose weights all have the type `dtype`, of `size` bytes."""
    (folder / "config.json").write_text(json.dumps(config))
    stored = stored_tensors(load_model(str(folder)))
    _write_weights(folder, [(each.name, dtype, each.shape, size) for each in stored])


@pytest.mark.parametrize(
    "dtype, size, machine, engine, expected",
    [
        ("BF16", 2, "ryzen7950x-cpu", "ours", "bf16"),
        ("BF16", 2, "ryzen7950x-cpu", "llama.cpp", "f16"),
        ("BF16", 2, "rtx3060-5600x", "ours", "f16"),
        ("F16", 2, "ryzen7950x-cpu", "ours", "f16"),
        ("F32", 4, "ryzen7950x-cpu", "ours", "f16"),
    ],
)
def test_weights_in_bf16_stay_so_where_only_own_kernels_compute(
    tmp_path: Path, dtype: str, size: int, machine: str, engine: str, expected: str
) -> None:
    _write_checkpoint(tmp_path, WIDE, dtype, size)
    question = {"model": str(tmp_path), "hardware": machine, "engine": engine}
    request = request_from({**question, "prompt_tokens": 8, "output_tokens": 8})
    assert request.weights == expected and not request.formats
    assert request_from({**question, "format": "q8_0"}).weights == "q8_0"


def test_a_checkpoint_that_is_not_all_there_is_planned_by_default(tmp_path: Path) -> None:
    _write_checkpoint(tmp_path, WIDE, "F64", 8)
    question = {"model": str(tmp_path), "hardware": "ryzen7950x-cpu", "prompt_tokens": 8, "output_tokens": 8}
    assert request_from(question).weights == "f16"
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.truncate(100)
    assert request_from(question).weights == "f16"
    with pytest.raises(BadInputError):
        request_from({**question, "format": "native"})


def test_a_checkpoint_of_quantised_weights_is_planned_as_it_is(tmp_path: Path) -> None:
    """Its experts in FP8 with a scale for 128 x 128 values, the rest in bf16."""
    scheme = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps({**WIDE, "quantization_config": scheme}))
    model, entries = load_model(str(tmp_path)), list[tuple[str, str, Sequence[int], int]]()
    for stored in stored_tensors(model):
        if ".experts." in stored.name:
            entries.append((stored.name, "F8_E4M3", stored.shape, 1))
            entries.append((f"{stored.name}_scale_inv", "F32", (2, 2), 4))
        else:
            entries.append((stored.name, "BF16", stored.shape, 2))
    end = _write_weights(tmp_path, entries)
    most, formats = resolve_formats(None, str(tmp_path), model)
    assert most == "fp8_block" and formats["q.weight", 0] == formats["router.weight", 3] == "bf16"
    matrices = [tensor for tensor in tensors(model) if len(tensor.shape) > 1]
    sizes = [tensor.size(formats.get((tensor.name, tensor.layer), most)) for tensor in matrices]
    vectors = sum(2 * tensor.elements for tensor in tensors(model) if len(tensor.shape) == 1)
    assert sum(sizes) + vectors == end


def test_a_tensor_that_the_model_does_not_have_is_refused_when_planning(tmp_path: Path) -> None:
    """Another layer's bias changes what is computed; Gemma's layers that read another's cache carry unused keys."""
    path, model = written(tmp_path, TINY["gemma4_text-layer-inputs"], {}, "f16")
    content = path.read_bytes()
    assert file_formats(path, model)["q.weight", 5] == "f16"
    path.write_bytes(content.replace(b"blk.5.attn_q_norm.weight", b"blk.5.attn_k_norm.weight"))
    with pytest.raises(BadInputError, match="a tensor of 48 values is expected"):
        file_formats(path, model)
    path.write_bytes(content.replace(b"blk.5.attn_q_norm.weight", b"blk.1.attn_out_bias.bias"))
    with pytest.raises(BadInputError, match="the model does not have this tensor") as caught:
        file_formats(path, model)
    assert caught.value.field == "blk.1.attn_out_bias.bias"


def test_a_plan_in_a_format_that_nothing_multiplies_is_not_run() -> None:
    question = {"model": "Qwen3-0.6B", "hardware": "ryzen7950x-cpu", "format": "q4_k", "strategy": "layer-split"}
    request = request_from({**question, "prompt_tokens": 8, "output_tokens": 8})
    check_executed(decide(request).plan)
    with pytest.raises(UsageError, match="planned and simulated") as caught:
        check_executed(decide(replace(request, weights="q5_k")).plan)
    assert (caught.value.field, caught.value.value) == ("residence", "q5_k")


@pytest.mark.parametrize(
    ("name", "most", "for_llama"),
    [
        ("gpt-oss-20b", "mxfp4", "mxfp4"),
        ("Qwen3.6-27B-NVFP4", "nvfp4", "f16"),
        ("DeepSeek-V3", "fp8_block", "f16"),
        ("Qwen3-8B", "f16", "f16"),
    ],
)
def test_models_of_quantised_weights_are_planned_as_they_were_released(name: str, most: str, for_llama: str) -> None:
    model = load_model(name)
    assert resolve_formats(None, name, model)[0] == most
    assert resolve_formats(None, name, model, in_gguf=True)[0] == for_llama
    assert resolve_formats("q8_0", name, model) == ("q8_0", {})
    question = {"model": name, "hardware": "rtx4090-7950x"}
    assert request_from(question).weights == most
    assert request_from({**question, "engine": "llama.cpp"}).weights == for_llama


def test_llama_cpp_has_other_matrices_of_models_in_mxfp4_in_eight_bits() -> None:
    """As the files that people have: 12.1 GB of gpt-oss-20b; its released ones have them in bf16."""
    model = load_model("gpt-oss-20b")
    files, released = (resolve_formats(None, "gpt-oss-20b", model, in_gguf=of)[1] for of in (True, False))
    assert files == resolve_formats("mxfp4", "gpt-oss-20b", model)[1]
    assert (files["q.weight", 0], released["q.weight", 0]) == ("q8_0", "bf16")
    assert weights_size(model, files, "f16") == pytest.approx(12.1e9, rel=0.005)


@pytest.mark.parametrize(
    ("name", "fmt"),
    [
        ("lmstudio-community/Qwen3-14B-GGUF", "q4_k_m"),
        ("unsloth/Qwen3-14B-GGUF:Q8_0", "q8_0"),
        ("ggml-org/gpt-oss-20b-GGUF", "mxfp4"),
        ("unsloth/gpt-oss-20b-GGUF:F16", "native"),
        ("ggml-org/gpt2-GGUF", "q4_k_m"),
        ("Qwen/Qwen3-14B", None),
        ("qwen3:14b", "q4_k_m"),
    ],
)
def test_a_repository_of_gguf_files_means_the_one_that_is_taken_by_default(name: str, fmt: str | None) -> None:
    assert stated_format(name) == fmt
