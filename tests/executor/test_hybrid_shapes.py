"""Layers of released models with states in their own sizes, few of them and with few experts, against transformers."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expert_models import Native
from hybrid_models import opened_hybrid, written_hybrid
from test_latent_models import difference, logits_of

from helmsman.executor._kernels import Pool

pytestmark = pytest.mark.nightly
IDS = np.random.default_rng(7).integers(0, 512, 96).tolist()
DELTA = {
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
}
QWEN = {
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "linear_num_value_heads": 32,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 16,
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3_next": {**DELTA, **QWEN, "num_experts_per_tok": 10},
    "qwen3_5_moe_text": {**DELTA, **QWEN, "num_experts_per_tok": 8},
    "qwen3_5_text": {
        **DELTA,
        "hidden_size": 5120,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 48,
        "intermediate_size": 17408,
    },
    "kimi_linear": {
        "hidden_size": 2304,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 9216,
        "moe_intermediate_size": 1024,
        "num_experts": 12,
        "num_experts_per_token": 8,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "linear_attn_config": {
            "kda_layers": [1],
            "full_attn_layers": [2],
            "num_heads": 32,
            "head_dim": 128,
            "short_conv_kernel_size": 4,
        },
    },
    "lfm2": {
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"],
    },
    "lfm2_moe": {
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 7168,
        "moe_intermediate_size": 1792,
        "num_experts": 12,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"],
    },
    "nemotron_h": {
        "hidden_size": 2688,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "intermediate_size": 1856,
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 8,
        "n_routed_experts": 12,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712,
    },
    "granitemoehybrid": {
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 768,
        "shared_intermediate_size": 1536,
        "num_local_experts": 16,
        "num_experts_per_tok": 10,
        "mamba_n_heads": 128,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "mamba_n_groups": 1,
        "num_hidden_layers": 2,
        "layer_types": ["mamba", "attention"],
    },
    "falcon_h1": {
        "hidden_size": 3072,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "intermediate_size": 12288,
        "mamba_d_ssm": 3072,
        "mamba_n_heads": 24,
        "mamba_d_head": 128,
        "mamba_d_state": 256,
        "mamba_n_groups": 1,
        "num_hidden_layers": 2,
    },
}
"""By family, sizes of Qwen3-Next-80B-A3B, Qwen3.5-35B-A3B and 27B, Kimi-Linear-48B-A3B, LFM2-1.2B, LFM2-8B-A1B,
Nemotron-3-Nano-30B-A3B, granite-4.0-h-small and Falcon-H1-7B."""


@pytest.mark.parametrize("family", SHAPES)
def test_layers_of_released_sizes(family: str, tmp_path: Path) -> None:
    """A prompt in one piece, in two, and then a token alone."""
    model = written_hybrid(family, tmp_path, spread=0.02, vocab_size=512, **SHAPES[family])
    expected = logits_of(model, IDS)
    del model
    cpus = sorted(os.sched_getaffinity(0))
    native = Native(opened_hybrid(tmp_path, room=6 << 30), Pool([cpus[0], cpus[-1]]))
    for pieces in ((96,), (40, 95, 96)):
        for first, stop in zip((0, *pieces), pieces, strict=False):
            assert difference(native.run(IDS[first:stop], first), expected[stop - 1]) <= 1e-3
