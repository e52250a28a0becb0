"""GGUF files of transformers' models with states, converted as llama.cpp's scripts do (its folder `conversion`)."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf_headers import header_bytes
from gguf_metadata import metadata
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Values = Mapping[str, Floats]
Config = Mapping[str, Any]

_ENDS = {
    "embed_tokens.weight": "token_embd.weight",
    "embeddings.weight": "token_embd.weight",
    "embedding_norm.weight": "token_embd_norm.weight",
    "norm.weight": "output_norm.weight",
    "norm_f.weight": "output_norm.weight",
    "final_layernorm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_NETWORKS = {
    "gate_proj.weight": "ffn_gate.weight",
    "up_proj.weight": "ffn_up.weight",
    "down_proj.weight": "ffn_down.weight",
    "gate.weight": "ffn_gate_inp.weight",
    "gate.e_score_correction_bias": "exp_probs_b.bias",
    "experts.gate_proj": "ffn_gate_exps.weight",
    "experts.up_proj": "ffn_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "experts.w1": "ffn_gate_exps.weight",
    "experts.w2": "ffn_down_exps.weight",
    "experts.w3": "ffn_up_exps.weight",
    "expert_bias": "exp_probs_b.bias",
    "router.weight": "ffn_gate_inp.weight",
    "router.layer.weight": "ffn_gate_inp.weight",
    "output_linear.weight": "ffn_down_exps.weight",
    "w1.weight": "ffn_gate.weight",
    "w2.weight": "ffn_down.weight",
    "w3.weight": "ffn_up.weight",
}
_SHARED = {f"{name}_proj.weight": f"ffn_{name}_shexp.weight" for name in ("gate", "up", "down")}
_ATTENTION = {
    "q_proj.weight": "attn_q.weight",
    "k_proj.weight": "attn_k.weight",
    "v_proj.weight": "attn_v.weight",
    "o_proj.weight": "attn_output.weight",
    "out_proj.weight": "attn_output.weight",
    "q_norm.weight": "attn_q_norm.weight",
    "k_norm.weight": "attn_k_norm.weight",
    "q_layernorm.weight": "attn_q_norm.weight",
    "k_layernorm.weight": "attn_k_norm.weight",
}
_DELTA = {
    "in_proj_qkv.weight": "attn_qkv.weight",
    "in_proj_z.weight": "attn_gate.weight",
    "in_proj_a.weight": "ssm_alpha.weight",
    "in_proj_b.weight": "ssm_beta.weight",
    "in_proj_ba.weight": "ssm_ba.weight",
}
_KIMI = {
    "b_proj.weight": "ssm_beta.weight",
    "g_a_proj.weight": "ssm_g_a.weight",
    "g_b_proj.weight": "ssm_g_b.weight",
    "f_a_proj.weight": "ssm_f_a.weight",
    "f_b_proj.weight": "ssm_f_b.weight",
    "dt_bias": "ssm_dt.bias",
    "A_log": "ssm_a",
    "o_norm.weight": "ssm_norm.weight",
    "kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "kv_a_layernorm.weight": "attn_kv_a_norm.weight",
}
_STATES = {
    "in_proj.weight": "ssm_in.weight",
    "conv1d.weight": "ssm_conv1d.weight",
    "conv1d.bias": "ssm_conv1d.bias",
    "A_log": "ssm_a",
    "D": "ssm_d",
    "dt_bias": "ssm_dt.bias",
    "norm.weight": "ssm_norm.weight",
    "out_proj.weight": "ssm_out.weight",
}
_PARTS: Mapping[str, Mapping[str, str]] = {
    "": {
        "input_layernorm.weight": "attn_norm.weight",
        "operator_norm.weight": "attn_norm.weight",
        "norm.weight": "attn_norm.weight",
        "ffn_norm.weight": "ffn_norm.weight",
        "pre_ff_layernorm.weight": "ffn_norm",
    },
    "self_attn.": {**_ATTENTION, **_KIMI},
    "self_attn.forget_gate.": _KIMI,
    "linear_attn.": {**_DELTA, **_STATES},
    "conv.": {
        "in_proj.weight": "shortconv.in_proj.weight",
        "conv.weight": "shortconv.conv.weight",
        "out_proj.weight": "shortconv.out_proj.weight",
    },
    "mamba.": _STATES,
    "shared_mlp.": {"output_linear.weight": "ffn_down_shexp.weight"},
    "mlp.shared_expert.": _SHARED,
    "mlp.shared_experts.": _SHARED,
    "block_sparse_moe.shared_experts.": _SHARED,
    "mixer.shared_experts.": _SHARED,
    "mlp.": {**_NETWORKS, "shared_expert_gate.weight": "ffn_gate_inp_shexp.weight"},
    "feed_forward.": _NETWORKS,
    "block_sparse_moe.": _NETWORKS,
    "mixer.": {**_NETWORKS, **_ATTENTION, **_STATES},
}
"""By the beginning of a name of Hugging Face's in a block, its end and the name of a file's tensor."""

_AROUND_ZERO = ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")
"""Families whose checkpoints have norms of hidden states and heads around zero."""
_TILED = ("qwen3_5_moe_text", "qwen3_5_text")
"""Families in whose files the first value heads of all key heads come before their second ones."""


def write_converted(state: Values, config: Config, path: Path) -> None:
    """Write the file of a model in f32, without a tokenizer."""
    tensors = converted(state, config)
    content, size = header_bytes(
        metadata(_as_released(config)), [(name, values.shape) for name, values in tensors.items()]
    )
    data = b"".join(values.tobytes().ljust(-(-values.nbytes // 32) * 32, b"\0") for values in tensors.values())
    path.write_bytes(content + data)
    assert path.stat().st_size == size


def _as_released(config: Config) -> Config:
    """Return a config with the letters or names that released files have for kinds of layers."""
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    key = "layer_types" if config["model_type"] == "granitemoehybrid" else "layers_block_type"
    kinds = [names.get(kind, kind) for kind in config.get(key, [])]
    if key == "layer_types":
        return {**config, key: kinds}
    if not kinds:
        return config
    letters = {"mamba": "M", "moe": "E", "attention": "*", "mlp": "-"}
    pattern = "".join(letters[kind] for kind in kinds)
    return {**config, "hybrid_override_pattern": pattern, "num_hidden_layers": len(kinds)}


def converted(state: Values, config: Config) -> dict[str, Floats]:
    """Return the tensors of a file, f32, by name."""
    result = dict[str, Floats]()
    for name, values in state.items():
        result.update({key: np.ascontiguousarray(made, np.float32) for key, made in _tensors(name, values, config)})
    return result


def _tensors(name: str, values: Floats, config: Config) -> Iterator[tuple[str, Floats]]:
    short = re.sub(r"^(model|backbone)\.", "", name)
    block = re.fullmatch(r"layers\.(\d+)\.(.*)", short)
    around_zero = config["model_type"] in _AROUND_ZERO and "linear_attn.norm" not in name
    if short.endswith("norm.weight") and around_zero:
        values = values + 1
    if block is None:
        yield _ENDS[short], multiplied(short, values, config)
        return
    for own, made in _of_block(block[2], values, config):
        yield f"blk.{block[1]}.{own}", made


def _of_block(name: str, values: Floats, config: Config) -> Iterator[tuple[str, Floats]]:
    if name == "shared_mlp.input_linear.weight":
        half = len(values) // 2
        yield "ffn_gate_shexp.weight", values[:half]
        yield "ffn_up_shexp.weight", values[half:]
    elif name.endswith(("experts.gate_up_proj", "block_sparse_moe.input_linear.weight")):
        half = values.shape[1] // 2
        yield "ffn_gate_exps.weight", values[:, :half]
        yield "ffn_up_exps.weight", values[:, half:]
    elif name == "self_attn.conv1d.weight":
        for kind, taps in zip("qkv", np.split(values, 3), strict=True):
            yield f"ssm_conv1d_{kind}.weight", taps.reshape(1, len(taps), 1, -1)
    elif name.startswith("self_attn.") and name.endswith("_conv1d.weight"):
        yield f"ssm_conv1d_{name.split('.')[1][0]}.weight", values.reshape(1, len(values), 1, -1)
    elif name == "self_attn.kv_b_proj.weight":
        by_head = values.reshape(config["num_attention_heads"], -1, values.shape[1])
        keys, sums = np.split(by_head, [config["qk_nope_head_dim"]], 1)
        yield "attn_k_b.weight", keys.swapaxes(1, 2)
        yield "attn_v_b.weight", sums
    elif name == "linear_attn.in_proj_qkvz.weight":
        qkv, gates = _by_kind(values, config)
        yield "attn_qkv.weight", qkv
        yield "attn_gate.weight", gates
    else:
        own = multiplied(name, _mixer(name, values, config), config)
        yield _name(name, config), _in_order(name, own, config)


def _name(name: str, config: Config) -> str:
    if name == "post_attention_layernorm.weight":
        return "post_attention_norm.weight" if config["model_type"] in _AROUND_ZERO else "ffn_norm.weight"
    start = next(start for start in sorted(_PARTS, key=len, reverse=True) if name.startswith(start))
    return _PARTS[start][name.removeprefix(start)]


def _mixer(name: str, values: Floats, config: Config) -> Floats:
    """Return rates as what decays are multiplied by, taps as a matrix, vectors of a state space by head or group."""
    delta = name.startswith("linear_attn.")
    if name.endswith("A_log"):
        return -np.exp(values if delta or values.ndim > 1 else values[:, None])
    if name.endswith(".D"):
        return values[:, None]
    if name.endswith(("mixer.norm.weight", "mamba.norm.weight")):
        return values.reshape(config.get("n_groups", config.get("mamba_n_groups")), -1)
    return values.reshape(len(values), -1) if name.endswith(("conv1d.weight", "conv.conv.weight")) else values


def multiplied(name: str, values: Floats, config: Config) -> Floats:
    """Return a tensor of Falcon-H1 times its multipliers, those of others as they are."""
    if config["model_type"] != "falcon_h1":
        return values
    into, out = config["ssm_in_multiplier"], config["ssm_out_multiplier"]
    attends = config["attention_in_multiplier"]
    inner, shared = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
    runs = (inner, inner, shared, shared, config["mamba_n_heads"])
    factors: dict[str, Any] = {
        "embed_tokens.weight": config["embedding_multiplier"],
        "lm_head.weight": config["lm_head_multiplier"],
        "self_attn.q_proj.weight": attends,
        "self_attn.k_proj.weight": attends * config["key_multiplier"],
        "self_attn.v_proj.weight": attends,
        "self_attn.o_proj.weight": config["attention_out_multiplier"],
        "mamba.in_proj.weight": into * np.repeat(config["ssm_multipliers"], runs)[:, None],
        "mamba.out_proj.weight": out,
        "feed_forward.gate_proj.weight": config["mlp_multipliers"][0],
        "feed_forward.down_proj.weight": config["mlp_multipliers"][1],
    }
    return (values * factors.get(name, 1.0)).astype(np.float32)


def _by_kind(values: Floats, config: Config) -> tuple[Floats, Floats]:
    """Return queries, keys and values, and their gates, of rows that every key head has all four of."""
    keys, dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    end = 2 * dim + config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
    parts = np.split(values.reshape(keys, -1, values.shape[1]), [dim, 2 * dim, end], 1)
    *qkv, gates = (part.reshape(-1, values.shape[1]) for part in parts)
    return np.concatenate(qkv), gates


def _in_order(name: str, values: Floats, config: Config) -> Floats:
    """Return the values of a delta rule with the first value heads of all key heads before their second ones; queries
    and keys of Granite with the two halves of a head in turns."""
    if config["model_type"] == "granitemoehybrid" and name.endswith(("q_proj.weight", "k_proj.weight")):
        dim = config["hidden_size"] // config["num_attention_heads"]
        return values.reshape(-1, 2, dim // 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
    if config["model_type"] not in _TILED:
        return values
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    before = 2 * keys * config["linear_key_head_dim"]
    match name.removeprefix("linear_attn."):
        case "in_proj_qkv.weight" | "conv1d.weight":
            return np.concatenate([values[:before], _tiles(values[before:], keys, heads)])
        case "in_proj_z.weight" | "in_proj_a.weight" | "in_proj_b.weight" | "A_log" | "dt_bias":
            return _tiles(values, keys, heads)
        case "out_proj.weight":
            return _tiles(values.T, keys, heads).T
    return values


def _tiles(rows: Floats, keys: int, heads: int) -> Floats:
    parts = rows.reshape(keys, heads // keys, -1, *rows.shape[1:])
    return np.ascontiguousarray(parts.swapaxes(0, 1)).reshape(rows.shape)
