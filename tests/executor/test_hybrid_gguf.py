"""GGUF files of models with states: those that llama.cpp's scripts convert are read, and Helm's own are like them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from converted_files import converted, write_converted
from drawn_state import drawn_state
from hybrid_models import COMMON, FAMILIES, HybridOnTorch, written_hybrid
from plans import make_plan
from test_latent_models import difference, logits_of
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import Arena
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.devices.torch.stage import TorchStage
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.gguf_checkpoint import GgufCheckpoint
from helmsman.executor.weights.opening import open_weights
from helmsman.hwdb.gguf_files import gguf_places
from helmsman.hwdb.gguf_types import BLOCK_TYPES
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

_DELTA = {"linear_num_value_heads": 6}
"""Three value heads for each of two key heads: an order that is not its own inverse."""
WRITTEN: dict[str, dict[str, Any]] = {
    "qwen3_5_moe_text": _DELTA,
    "qwen3_5_text": _DELTA,
    "qwen3_next": _DELTA,
    "kimi_linear": {},
    "lfm2": {},
    "lfm2_moe": {},
    "falcon_h1": {},
    "granitemoehybrid": {"position_embedding_type": "rope"},
    "nemotron_h": {"layers_block_type": ["mamba", "moe", "attention", "mamba", "moe"]},
}
"""Families whose files are written and read, and what their configs say beside the usual."""
PROMPT, OUTPUT = 150, 8
TOLERANCE = 1e-3
"""Of the largest logit."""


@TWO_CPUS
@pytest.mark.parametrize("on_cpu", [2, pytest.param(None, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("family", WRITTEN)
def test_logits_of_a_converted_file_are_those_of_transformers(family: str, on_cpu: int | None, tmp_path: Path) -> None:
    """A long prompt passes in chunks, and its last token alone."""
    oracle = written_hybrid(family, tmp_path, **WRITTEN[family])
    state = {name: values.numpy() for name, values in oracle.state_dict().items()}
    write_converted(state, oracle.config.to_dict(), tmp_path / "model.gguf")
    model = load_model(str(tmp_path / "model.gguf"))
    ids = np.random.default_rng(3).integers(0, 128, PROMPT).tolist()
    expected = logits_of(oracle, ids)
    plan = make_plan(model, on_cpu, workload=Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=256))
    with Engine.load(plan, tmp_path / "model.gguf", Machine.this()) as engine:
        computed = engine.logits(np.array([ids], np.int32), prompt=PROMPT - 1)[0]
    assert np.abs(computed - expected[-2:]).max() <= TOLERANCE * np.abs(expected).max()


def test_pytorch_stages_follow_the_order_of_value_heads(tmp_path: Path) -> None:
    oracle = written_hybrid("qwen3_5_text", tmp_path, **_DELTA)
    state = {name: values.numpy() for name, values in oracle.state_dict().items()}
    write_converted(state, oracle.config.to_dict(), tmp_path / "model.gguf")
    model = load_model(str(tmp_path / "model.gguf"))
    weights = GgufCheckpoint.open(tmp_path / "model.gguf", model)
    loaded = HybridOnTorch(model, weights, "f32", Arena(64 << 20))
    spec = loaded.spec()
    stage = TorchStage(spec, loaded.memory.alloc(regions_of(spec).size, "workspace"), 0)
    ids = np.random.default_rng(3).integers(0, 128, 80).tolist()
    expected = logits_of(oracle, ids)
    for part, past in ((slice(0, 79), 0), (slice(79, 80), 79)):
        stage.feed(torch.tensor([ids]), part, past)
        stage.compute(0, len(stage.ops), part.stop - part.start, past, ends=True)
        assert difference(np.array(stage.logits())[0], expected[part.stop - 1]) <= TOLERANCE


def configured(family: str, folder: Path, **changes: Any) -> tuple[Model, dict[str, Any]]:
    """Return the model of a family's config, which llama.cpp could compute too, and the config."""
    from transformers import AutoConfig

    sizes = {**COMMON, **FAMILIES[family], **WRITTEN[family], "vocab_size": 512}
    equal = {"linear_value_head_dim": 16} if "linear_value_head_dim" in sizes else {}
    config = AutoConfig.for_model(family, **{**sizes, **equal, **changes})
    config.save_pretrained(folder / "config")
    return load_model(str(folder / "config" / "config.json")), config.to_dict()


@pytest.mark.parametrize("family", WRITTEN)
def test_a_written_file_is_what_a_checkpoint_of_the_same_values_is_converted_to(family: str, tmp_path: Path) -> None:
    (model, config), place = configured(family, tmp_path), tmp_path / "model.gguf"
    write_gguf(model, place, 1, "f32")
    expected = converted(drawn_state(model, 1), config)
    places, data = gguf_places(place), place.read_bytes()
    assert set(places) == set(expected)
    for name, values in expected.items():
        entry = places[name]
        written = np.frombuffer(data[entry.start : entry.end], np.float32)
        np.testing.assert_allclose(written.reshape(entry.shape), values, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("family", [family for family in WRITTEN if family != "falcon_h1"])
def test_a_written_file_describes_its_model(family: str, tmp_path: Path) -> None:
    """But for multipliers that are those of weights."""
    model, _ = configured(family, tmp_path)
    write_gguf(model, tmp_path / "model.gguf", 1, "f32")
    check_agreement(load_model(str(tmp_path / "model.gguf")), model, "f")


def test_pieces_of_one_matrix_may_have_several_formats(tmp_path: Path) -> None:
    """Queries, keys and values of Kimi are rows of one matrix; keys are said to be of another 16-bit format."""
    (model, _), place = configured("kimi_linear", tmp_path), tmp_path / "model.gguf"
    write_gguf(model, place, 1, "f16")
    tensor = next(tensor for tensor in tensors(model) if tensor.name == "delta_in.weight")
    whole = np.asarray(open_weights(place, model).tensor(tensor)[1])
    content, name = place.read_bytes(), b"blk.0.attn_k.weight"
    at = content.index(name) + len(name) + 4 + 2 * 8
    number = next(number for number, kind in BLOCK_TYPES.items() if kind.name == "bf16")
    place.write_bytes(content[:at] + number.to_bytes(4, "little") + content[at + 4 :])
    fmt, rows = open_weights(place, model).tensor(tensor)
    third, bits = len(whole) // 3, whole.view(np.uint16).astype(np.uint32) << 16
    expected = whole.astype(np.float32)
    expected[third : 2 * third] = bits.view(np.float32)[third : 2 * third]
    across = slice(third - 3, third + 3)
    assert fmt == "f32" and np.array_equal(rows, expected) and np.array_equal(rows[across], expected[across])


def test_a_model_beside_images_is_written_as_that_of_text(tmp_path: Path) -> None:
    model, _ = configured("qwen3_5_moe_text", tmp_path, shared_expert_intermediate_size=64)
    around = model.model_copy(update={"family": "qwen3_5_moe"})
    for name, written in (("text", model), ("around", around)):
        write_gguf(written, tmp_path / f"{name}.gguf", 1, "q4_0")
    assert (tmp_path / "text.gguf").read_bytes() == (tmp_path / "around.gguf").read_bytes()
    check_agreement(load_model(str(tmp_path / "text.gguf")), around, "f")


def test_rates_that_do_not_decay_are_refused_by_name(tmp_path: Path) -> None:
    (model, _), place = configured("qwen3_5_moe_text", tmp_path), tmp_path / "model.gguf"
    write_gguf(model, place, 1, "f32")
    start = gguf_places(place)["blk.1.ssm_a"].start
    content = bytearray(place.read_bytes())
    content[start : start + 4] = np.float32(0.25).tobytes()
    place.write_bytes(content)
    with pytest.raises(BadInputError, match="a rate of decay that is not below 0") as raised:
        Engine.load(make_plan(load_model(str(place))), place, Machine.this())
    assert raised.value.field == "blk.1.ssm_a"


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("qwen3_5_text", {"linear_value_head_dim": 32}, "values of another length than keys"),
        ("qwen3_next", {"mlp_only_layers": [1]}, "blocks without experts among others"),
        ("qwen3_next", {"norm_topk_prob": False}, "not divided by their sum"),
        ("lfm2", {"conv_bias": True}, "convolutions with a bias"),
        ("lfm2_moe", {"use_expert_bias": False}, "a router without bias"),
        ("nemotron_h", {"layers_block_type": ["mamba", "moe", "attention", "mlp"]}, "without experts"),
        ("nemotron_h", {"use_bias": True}, "projections with a bias"),
        ("granitemoehybrid", {"layer_types": ["attention"] * 4}, "attention in all layers"),
        ("granitemoehybrid", {"mamba_expand": 4, "mamba_d_head": 32}, "twice the hidden values"),
        ("falcon_h1", {"mamba_rms_norm": True, "mamba_norm_before_gate": True}, "before their gates"),
        ("falcon_h1", {"tie_word_embeddings": True}, "whose multipliers differ"),
        ("falcon_h1", {"attention_bias": True}, "biases beside multipliers"),
    ],
)
def test_what_files_cannot_state_is_not_written(
    family: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInputError, match=message):
        write_gguf(configured(family, tmp_path, **changes)[0], tmp_path / "model.gguf")
