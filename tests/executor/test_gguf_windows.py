"""GGUF files of models with windows: a description like the config's, and the logits of transformers' model with the
values of the file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import oracle_logits
from numpy.typing import NDArray
from plans import make_plan
from two_cpus import TWO_CPUS
from window_models import COMMON, CONTEXT, MODELS

from helmsman.executor.checkpoint.blocks import quantise
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.computed_values import norm_of
from helmsman.executor.weights.conversion import rows_as_f32
from helmsman.executor.weights.opening import Weights, open_weights
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.stored_names import StoredTensor, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import FORMATS, FileFormat
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

PROMPT = 60
TOLERANCE = 1e-3
"""Of the largest logit."""

FIELDS: dict[str, dict[str, Any]] = {
    "gpt_oss": MODELS["gpt_oss"][1],
    "gemma3_text": {**MODELS["gemma3"][1], "num_hidden_layers": 7, "layer_types": None},
}
"""The fields of each family's config beside `COMMON`; every sixth layer of the Gemma model has no window."""


def described(family: str, folder: Path, **changes: Any) -> tuple[Model, Any]:
    """Return a model of 512 tokens, and transformers' own."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **{**COMMON, **FIELDS[family], "vocab_size": 512, **changes})
    config.save_pretrained(folder / "config")
    oracle = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    return load_model(str(folder / "config" / "config.json")), oracle


def fill(oracle: Any, model: Model, weights: Weights) -> None:
    """Give transformers' model the values of a file."""
    state = {stored.name: torch.from_numpy(joined(stored, model, weights)) for stored in stored_tensors(model)}
    left = oracle.load_state_dict(state, strict=False)
    assert not left.unexpected_keys and set(left.missing_keys) <= {"lm_head.weight"}


def joined(stored: StoredTensor, model: Model, weights: Weights) -> NDArray[np.float32]:
    """Return a tensor of a Hugging Face checkpoint: rows of gate and up by turns, experts' matrices by columns."""
    parts = [values(part, model, weights) for part in stored.parts]
    both = np.stack(parts, 2) if stored.layout == "turns" else parts[0]
    flat = both.reshape(len(both), -1, *both.shape[3:]) if stored.layout == "turns" else both
    return np.ascontiguousarray(flat.swapaxes(1, 2) if stored.form == "transposed" and flat.ndim > 2 else flat)


def values(tensor: Tensor, model: Model, weights: Weights) -> NDArray[np.float32]:
    """Return what a tensor holds, of norms that checkpoints store around zero 1 less."""
    fmt, rows = weights.tensor(tensor)
    read = np.ascontiguousarray(rows[:])
    plain = read.astype(np.float32) if fmt in FORMATS else rows_as_f32(read, fmt, tensor.shape[-1])
    norm = norm_of(model, tensor)
    return plain.reshape(tensor.shape) - np.float32(norm is not None and norm.offset)


@TWO_CPUS
@pytest.mark.parametrize(("family", "fmt"), [("gemma3_text", "f32"), ("gpt_oss", "f32"), ("gpt_oss", "mxfp4")])
def test_logits_of_a_file_are_those_of_transformers(family: str, fmt: FileFormat, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model, oracle = described(family, tmp_path)
    place = tmp_path / "model.gguf"
    write_gguf(model, place, 1, fmt)
    check_agreement(load_model(str(place)), model, "f")
    fill(oracle, model, open_weights(place, model))
    ids = np.random.default_rng(2).integers(0, model.vocab, PROMPT).tolist()
    expected = oracle_logits(oracle, ids)[PROMPT - 2 :]
    plan = make_plan(model, workload=Workload(prompt_tokens=PROMPT, output_tokens=8, context=CONTEXT))
    with Engine.load(plan, place, Machine.this()) as engine:
        computed = engine.logits(np.array([ids], np.int32), prompt=PROMPT - 1)[0]
    assert np.abs(computed - expected).max() < TOLERANCE * np.abs(expected).max()


def test_experts_alone_are_in_micro_blocks(tmp_path: Path) -> None:
    """Other matrices have 8 bits; vectors, biases of experts too, and routers are exact."""
    model, _ = described("gpt_oss", tmp_path)
    write_gguf(model, tmp_path / "model.gguf", 1, "mxfp4")
    write_gguf(model, tmp_path / "exact.gguf", 1, "f32")
    small, exact = (open_weights(tmp_path / name, model) for name in ("model.gguf", "exact.gguf"))
    formats = {}
    for tensor in tensors(model):
        (fmt, found), (_, expected) = small.tensor(tensor), exact.tensor(tensor)
        formats[tensor.name] = fmt
        rows = np.asarray(expected, np.float32)
        assert np.array_equal(found, rows if fmt == "f32" else quantise(rows, fmt)), tensor
    assert {name for name, fmt in formats.items() if fmt == "mxfp4"} == {
        "experts_gate.weight", "experts_up.weight", "experts_down.weight"
    }  # fmt: skip
    assert formats["experts_up.bias"] == formats["router.weight"] == formats["sinks.weight"] == "f32"
    assert formats["q.weight"] == formats["embedding.weight"] == "q8_0"


def test_windows_in_other_layers_are_not_written(tmp_path: Path) -> None:
    kinds = ["full_attention", "sliding_attention"] * 2
    model, _ = described("gpt_oss", tmp_path, layer_types=kinds)
    with pytest.raises(BadInputError, match="windows in other layers than files mean"):
        write_gguf(model, tmp_path / "model.gguf")
