"""Layers of released models of latent attention in their own sizes, with fewer and narrower experts, against
transformers."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from expert_models import Native
from latent_models import opened_latent, written_latent

from helmsman.executor._kernels import Pool

pytestmark = pytest.mark.nightly
IDS = np.random.default_rng(7).integers(0, 512, 96).tolist()
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "vocab_size": 512, "num_hidden_layers": 2}
SHAPES: dict[str, dict[str, Any]] = {
    "deepseek_v2": {
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 8,
        "num_experts_per_tok": 6,
    },
    "glm4_moe_lite": {
        "hidden_size": 2048,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "q_lora_rank": 768,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "intermediate_size": 10240,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 8,
        "mlp_layer_types": ["dense", "sparse"],
    },
    "deepseek_v3": {
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "intermediate_size": 1024,
        "moe_intermediate_size": 256,
        "n_routed_experts": 16,
    },
}


@pytest.mark.parametrize("family", SHAPES)
def test_layers_of_released_sizes(family: str, tmp_path: Path) -> None:
    """A prompt in one piece, in two, and then a token alone."""
    model = written_latent(family, tmp_path, spread=0.02, **LATENT, **SHAPES[family])
    with torch.no_grad():
        expected = model(torch.tensor([IDS])).logits[0].numpy()
    del model
    cpus = sorted(os.sched_getaffinity(0))
    native = Native(opened_latent(tmp_path, room=5 << 30), Pool([cpus[0], cpus[-1]]))
    for pieces in ((96,), (40, 95, 96)):
        for first, stop in zip((0, *pieces), pieces, strict=False):
            computed = native.run(IDS[first:stop], first)
            assert np.abs(computed - expected[stop - 1]).max() <= 1e-3 * np.abs(expected[stop - 1]).max()
