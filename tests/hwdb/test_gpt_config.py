"""GPT-2 and GPT-NeoX configs, in the keys of old and new transformers."""

from typing import Any

import pytest

from helmsman.hwdb.model_config import model_from_config
from helmsman.lowering.tensors import parameters
from helmsman.schemas.blocks.positions import LearnedPositions, Rope
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

GPT2 = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
PYTHIA = {
    "model_type": "gpt_neox",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 50304,
    "max_position_embeddings": 2048,
    "rotary_pct": 0.25,
    "rotary_emb_base": 10000,
}


def read(config: dict[str, Any], **changes: Any) -> Model:
    return model_from_config({**config, **changes}, "model", "config.json")


def test_gpt2_has_its_published_size() -> None:
    model = read(GPT2)
    assert parameters(model) == 124_439_808
    assert model.dense.position == LearnedPositions(offset=0) and model.dense.ffn == 3072 and model.eos == (50256,)


def test_pythia_1b_has_its_published_size() -> None:
    model = read(PYTHIA)
    assert parameters(model) == 1_011_781_632
    assert model.dense.position == Rope(theta=1e4, rotary_dim=64)


def test_new_and_old_keys_mean_the_same() -> None:
    new = {key: value for key, value in PYTHIA.items() if not key.startswith("rotary")}
    parameters = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    assert read(new, rope_parameters=parameters) == read(PYTHIA) == read(new)


@pytest.mark.parametrize(
    ("config", "changes", "says"),
    [
        (GPT2, {"n_head": 7}, "n_head: must divide the hidden size"),
        (GPT2, {"n_layer": None}, "n_layer: missing"),
        (GPT2, {"add_cross_attention": True}, "not covered: add_cross_attention"),
        (GPT2, {"activation_function": "tanh"}, "activation not covered"),
        (PYTHIA, {"rotary_pct": 1.5}, "rotary_pct: must be above 0"),
        (PYTHIA, {"rotary_pct": 0.001}, "rotary dimensions"),
        (PYTHIA, {"use_parallel_residual": False}, "not covered: use_parallel_residual"),
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "not covered: scale_attn_by_inverse_layer_idx"),
    ],
)
def test_what_is_refused(config: dict[str, Any], changes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        read(config, **changes)
