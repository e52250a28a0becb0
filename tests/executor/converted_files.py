"""GGUF files of transformers' models with states, converted as llama.cpp's scripts do (`conversion/qwen.py`)."""

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

_ENDS = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
}
"""Names of Hugging Face's tensors, in a block and outside, and those of files."""


def write_converted(state: Values, config: Mapping[str, Any], path: Path) -> None:
    """Write the file of a model in f32, without a tokenizer."""
    tensors = converted(state, config)
    content, size = header_bytes(metadata(config), [(name, values.shape) for name, values in tensors.items()])
    data = b"".join(values.tobytes().ljust(-(-values.nbytes // 32) * 32, b"\0") for values in tensors.values())
    path.write_bytes(content + data)
    assert path.stat().st_size == size


def converted(state: Values, config: Mapping[str, Any]) -> dict[str, Floats]:
    """Return the tensors of a file, f32, by name."""
    result = dict[str, Floats]()
    for name, values in state.items():
        result.update({key: np.ascontiguousarray(made, np.float32) for key, made in _tensors(name, values, config)})
    return result


def _tensors(name: str, values: Floats, config: Mapping[str, Any]) -> Iterator[tuple[str, Floats]]:
    block = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
    if block is None:
        short = name.removeprefix("model.")
        yield ("output.weight", values) if name == "lm_head.weight" else (_ENDS[short], _plus_one(short, values))
        return
    start = f"blk.{block[1]}."
    for own, made in _of_block(block[2], _plus_one(block[2], values), config):
        yield start + own, made


def _plus_one(name: str, values: Floats) -> Floats:
    return values + 1 if name.endswith("norm.weight") and "linear_attn.norm" not in name else values


def _of_block(name: str, values: Floats, config: Mapping[str, Any]) -> Iterator[tuple[str, Floats]]:
    match name:
        case "mlp.experts.gate_up_proj":
            half = values.shape[1] // 2
            yield "ffn_gate_exps.weight", values[:, :half]
            yield "ffn_up_exps.weight", values[:, half:]
        case _:
            yield _NAMES[name], tiled(name, _mixer(name, values), config)


def _mixer(name: str, values: Floats) -> Floats:
    if name.endswith("A_log"):
        return -np.exp(values)
    return values.reshape(len(values), -1) if name.endswith("conv1d.weight") else values


def tiled(name: str, values: Floats, config: Mapping[str, Any]) -> Floats:
    """Return the values of a delta rule with the first value heads of all key heads before their second ones."""
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
