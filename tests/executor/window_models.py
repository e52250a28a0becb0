"""Tiny models whose attention has windows, sinks or caps: transformers' own, written as checkpoints."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from helmsman.hwdb.load_model import load_model
from helmsman.schemas.model import Model

CONTEXT = 192
WINDOW = 24
COMMON = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
    "max_position_embeddings": CONTEXT,
    "sliding_window": WINDOW,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
_GEMMA4: dict[str, Any] = {
    "num_hidden_layers": 3, "intermediate_size": 96, "global_head_dim": 32, "num_global_key_value_heads": 1,
    "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 20.0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_oss": ("gpt_oss", {"num_hidden_layers": 4, "intermediate_size": 32, "num_local_experts": 8,
                "num_experts_per_tok": 2,
                "rope_parameters": {"rope_type": "yarn", "factor": 8.0, "rope_theta": 15000.0, "beta_fast": 32.0,
                                    "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 24}}),
    "gemma2": ("gemma2", {"num_hidden_layers": 3, "intermediate_size": 96, "query_pre_attn_scalar": 24,
               "attn_logit_softcapping": 5.0, "final_logit_softcapping": 20.0}),
    "gemma3": ("gemma3_text", {"num_hidden_layers": 3, "intermediate_size": 96, "query_pre_attn_scalar": 24,
               "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
               "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                                   "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}}),
    "gemma4": ("gemma4_text", _GEMMA4),
    "gemma4-inputs": ("gemma4_text", {**_GEMMA4, "num_hidden_layers": 7, "num_global_key_value_heads": None,
                      "attention_k_eq_v": False, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 512,
                      "num_kv_shared_layers": 3, "use_double_wide_mlp": True,
                      "layer_types": [*["sliding_attention"] * 3, "full_attention",
                                      "sliding_attention", "sliding_attention", "full_attention"]}),
    "gemma4-experts": ("gemma4_text", {**_GEMMA4, "enable_moe_block": True, "num_experts": 8, "top_k_experts": 3,
                       "moe_intermediate_size": 32}),
}  # fmt: skip
"""By name, the model type and what its config says beside `COMMON`."""

_AROUND_ZERO = ("gemma2", "gemma3_text")
"""Families whose norms store 1 less than their weights."""


def written(name: str, directory: Path, **changes: Any) -> tuple[Model, Any]:
    """Write a random model; return its description and transformers' own."""
    from transformers import AutoConfig, AutoModelForCausalLM

    family, fields = MODELS[name]
    config = AutoConfig.for_model(family, **{**COMMON, **fields, **changes}, dtype="float32")
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, value in model.named_parameters():
            around_one = value.dim() == 1 and not key.endswith(("bias", "sinks")) and family not in _AROUND_ZERO
            value.normal_(0, 0.2 if value.dim() > 1 else 0.5 if key.endswith("sinks") else 0.1).add_(float(around_one))
        for key, buffer in model.named_buffers():
            if key.endswith("layer_scalar"):
                buffer.fill_(0.75)
    model.save_pretrained(directory)
    return load_model(str(directory / "config.json")), model


LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""The values of MXFP4's codes (E2M1)."""


def micro_values(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return what blocks (.., groups, 16) and scales (.., groups) of a checkpoint stand for, (.., 32 groups)."""
    codes = np.stack((blocks & 15, blocks >> 4), -1).reshape(*blocks.shape[:-1], 32)
    values = LEVELS[codes] * np.exp2(scales.astype(np.float32) - 127)[..., None]
    return values.reshape(*blocks.shape[:-2], -1)


def written_in_micro_blocks(directory: Path) -> tuple[Model, Any]:
    """Write a gpt-oss whose experts are in MXFP4, as released ones are; return its description and transformers' own
    model with their values."""
    _, oracle = written("gpt_oss", directory)
    tensors, rng = load_file(directory / "model.safetensors"), np.random.default_rng(8)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, columns, rows = tensors.pop(name).shape
        blocks = rng.integers(0, 256, (experts, rows, columns // 32, 16), np.uint8)
        scales = rng.integers(121, 125, (experts, rows, columns // 32), np.uint8)
        tensors |= {f"{name}_blocks": torch.from_numpy(blocks), f"{name}_scales": torch.from_numpy(scales)}
        oracle.get_parameter(name).data = torch.from_numpy(micro_values(blocks, scales).swapaxes(1, 2).copy())
    save_file(tensors, directory / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens"]}
    (directory / "config.json").write_text(json.dumps(config))
    return load_model(str(directory / "config.json")), oracle
