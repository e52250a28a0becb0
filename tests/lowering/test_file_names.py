"""Names and shapes of tensors in files of every architecture, against transformers on the meta device."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from daily import one_in
from gguf_metadata import ARCHITECTURES
from tiny_configs import TINY
from together import together

from helmsman.hwdb.load_model import catalogue_names, load_model
from helmsman.hwdb.model_config import model_from_config
from helmsman.lowering.stored_names import Names, file_name, gguf_name, stored_tensors
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

_NOT_OURS = re.compile(r".*\.tid2eid")
"""Tables from token to experts, which are no parameters."""


def described(name: str) -> Model:
    return model_from_config(TINY[name], name, "config.json")


@pytest.mark.parametrize("name", one_in(2, sorted(TINY)))
def test_names_and_shapes_are_those_of_transformers(name: str, on_meta: Callable[[dict[str, Any]], Any]) -> None:
    """As transformers 5 saves them, which stacks experts that released files keep apart."""
    model, state = described(name), on_meta(TINY[name]).state_dict()
    expected = {key: tuple(value.shape) for key, value in state.items() if not _NOT_OURS.fullmatch(key)}
    if model.head.tied:
        del expected["lm_head.weight"]
    stored = stored_tensors(model, present=frozenset(expected))
    assert {item.name: item.shape for item in stored} == expected


def covered(model: Model, names: Names) -> Counter[tuple[str, int | None]]:
    """Values of each of our tensors in the files, by their shares."""
    counted: Counter[tuple[str, int | None]] = Counter()
    for item in stored_tensors(model, names):
        for part in item.parts:
            counted[part.name, part.layer] += round(item.elements * item.share(part))
    return counted


@together("names", [file_name, gguf_name])
@together("name", sorted(TINY))
def test_every_value_has_one_place_in_released_files(name: str, names: Names) -> None:
    if names is gguf_name and TINY[name]["model_type"] not in ARCHITECTURES:
        with pytest.raises(BadInputError, match="GGUF has no names for this family"):
            stored_tensors(described(name), names)
        return
    model = described(name)
    places = Counter(item.name for item in stored_tensors(model, names))
    assert set(places.values()) == {1}
    ours = [tensor for tensor in tensors(model) if tensor.tied_to is None]
    assert covered(model, names) == {(tensor.name, tensor.layer): tensor.elements for tensor in ours}


def released(name: str, names: Names = file_name) -> set[str]:
    return {item.name for item in stored_tensors(described(name), names)}


@together(
    ("name", "expected"),
    [
        ("mixtral", "model.layers.3.block_sparse_moe.experts.7.w2.weight"),
        ("qwen3_moe", "model.layers.0.mlp.experts.0.up_proj.weight"),
        ("minimax_m2", "model.layers.0.block_sparse_moe.e_score_correction_bias"),
        ("gpt_oss", "model.layers.1.mlp.experts.gate_up_proj_bias"),
        ("gemma4_text", "model.layers.2.router.per_expert_scale"),
        ("qwen3_next", "model.layers.0.linear_attn.in_proj_qkvz.weight"),
        ("qwen3_5_moe_text", "model.layers.0.mlp.experts.gate_up_proj"),
        ("deepseek_v3", "model.layers.3.mlp.experts.5.gate_proj.weight"),
        ("kimi_linear", "model.layers.2.self_attn.k_conv1d.weight"),
        ("llama4_text", "model.layers.1.feed_forward.experts.down_proj"),
        ("nemotron_h-experts", "backbone.layers.1.mixer.experts.2.up_proj.weight"),
        ("granitemoehybrid", "model.layers.0.block_sparse_moe.input_linear.weight"),
        ("lfm2_moe", "model.layers.1.feed_forward.experts.3.w3.weight"),
        ("deepseek_v4", "layers.1.attn.indexer.compressor.wgate.weight"),
        ("deepseek_v4", "head.weight"),
    ],
)
def test_released_files_have_names_of_their_own(name: str, expected: str) -> None:
    assert expected in released(name)


@together(
    ("name", "expected"),
    [
        ("mixtral", "blk.3.ffn_down_exps.weight"),
        ("gpt_oss", "blk.0.ffn_gate_exps.bias"),
        ("gpt_oss", "blk.0.post_attention_norm.weight"),
        ("gemma4_text", "blk.0.ffn_gate_up_exps.weight"),
        ("gemma4_text", "blk.0.pre_ffw_norm_2.weight"),
        ("gemma4_text-layer-inputs", "blk.5.post_norm.weight"),
        ("qwen3_next", "blk.0.ssm_ba.weight"),
        ("qwen3_5_text", "blk.0.ssm_alpha.weight"),
        ("deepseek_v3", "blk.1.exp_probs_b.bias"),
        ("kimi_linear", "blk.0.ssm_conv1d_v.weight"),
        ("nemotron_h-experts", "blk.1.ffn_latent_down.weight"),
        ("falcon_h1", "blk.0.ffn_norm"),
        ("lfm2", "token_embd_norm.weight"),
    ],
)
def test_gguf_files_have_names_of_their_own(name: str, expected: str) -> None:
    assert expected in released(name, gguf_name)


@pytest.mark.parametrize(
    ("name", "fused", "apart"),
    [
        ("deepseek_v2", "blk.0.attn_kv_b.weight", "blk.0.attn_k_b.weight"),
        ("qwen3_moe", "blk.0.ffn_gate_up_exps.weight", "blk.0.ffn_gate_exps.weight"),
        ("phimoe", "blk.0.attn_qkv.weight", "blk.0.attn_q.weight"),
        ("qwen3_next", "blk.0.ssm_in.weight", "blk.0.attn_qkv.weight"),
    ],
)
def test_what_a_file_has_decides_between_two_ways_to_store(name: str, fused: str, apart: str) -> None:
    model = described(name)
    names = {item.name for item in stored_tensors(model, gguf_name, frozenset([fused]))}
    assert fused in names and apart not in names and apart in released(name, gguf_name)


def test_models_beside_others_have_their_names_behind_a_prefix() -> None:
    config = {key: value for key, value in TINY["gemma3_text"].items() if key != "model_type"}
    model = model_from_config({"model_type": "gemma3", "text_config": config}, "gemma", "config.json")
    older = frozenset(["language_model.model.layers.0.input_layernorm.weight"])
    assert stored_tensors(model)[0].name == "model.language_model.embed_tokens.weight"
    assert stored_tensors(model, present=older)[0].name == "language_model.model.embed_tokens.weight"


@together("name", catalogue_names())
def test_every_catalogue_model_has_names(name: str) -> None:
    model = load_model(name)
    if len(model.pattern) > 8:
        model = model.with_pattern("".join(dict.fromkeys(model.pattern))) if not shares_caches(model) else model
    names = [item.name for item in stored_tensors(model)]
    assert len(names) == len(set(names)) > 5


def shares_caches(model: Model) -> bool:
    return any(layout.attention is not None and layout.attention.cache_of is not None for layout in model.layouts)
