"""Tiny models of latent attention: transformers' own, written as a checkpoint, and the same as a stage."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from expert_models import CAPACITY, OnTorch, Told

from helmsman.executor._kernels import Arena
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.stages.block_part import StageCache
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.layer_cache import cache_of
from helmsman.schemas.formats import KvFormat, StoredFormat, rows_size
from helmsman.schemas.model import Model

COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32, "beta_slow": 1}
_V3 = {
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_shared_experts": 1,
    "q_lora_rank": 48,
    "norm_topk_prob": True,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "deepseek_v2": {
        "q_lora_rank": None,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_shared_experts": 2,
        "topk_method": "greedy",
        "routed_scaling_factor": 1.0,
        "rope_scaling": {**_YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
    },
    "deepseek_v3": {
        **_V3,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 2.5,
        "rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
    "glm4_moe_lite": {
        **_V3,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.8,
        "qk_nope_head_dim": 24,
        "v_head_dim": 32,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    },
}


def written_latent(family: str, directory: Path, spread: float = 0.3, **changes: Any) -> Any:
    """Write a random model of a family, with a router whose choices are spread and corrected; return transformers'.

    `spread`: the standard deviation of matrices' values."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {**COMMON, **FAMILIES[family], **changes}
    config = AutoConfig.for_model(family, **sizes, eos_token_id=None, dtype="float32")
    torch.manual_seed(4)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(0, spread if value.dim() > 1 else 0.2).add_(float(value.dim() == 1))
            if name.endswith("gate.weight"):
                value.mul_(2.0)
        for name, value in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                value.normal_(0, 0.2)
    model.save_pretrained(directory)
    return model


class LatentTold(Told):
    """A part of a plan whose caches have one row a token, in `kv`."""

    kv: KvFormat = "f32"

    def cache(self, layer: int) -> StageCache:
        """Return a cache of rows."""
        cache = cache_of(self.model, layer)
        assert cache is not None and cache.heads == 1
        rows = self.room(CAPACITY * rows_size(1, cache.key_dim, self.kv))
        return StageCache(self._rows.setdefault(layer, rows), None, [], [])

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows: dict[int, Buffer] = {}


class LatentOnTorch(OnTorch):
    """The same in memory of a PyTorch device."""

    kv: KvFormat = "f32"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows: dict[int, Any] = {}

    cache = LatentTold.cache


class WithoutNorm(LatentTold):
    """Latent vectors are normed and not multiplied by the norm's weights."""

    def vector(self, op: str, name: str, layer: int | None) -> Buffer | None:
        """Return a vector."""
        values = self.values(f"{name}.weight", layer)
        if values is None:
            return None
        kept: Buffer = self.kept(np.ones_like(values) if name == "kv_norm" else values)
        return kept


def opened_latent(
    directory: Path,
    fmt: StoredFormat = "f32",
    kind: type[Told] = LatentTold,
    model: Model | None = None,
    room: int = 64 << 20,
) -> Told:
    """Return the model of a checkpoint, or another that is computed with its weights, in `room` bytes."""
    stored = load_model(str(directory / "config.json"))
    loaded = kind(stored, Checkpoint.open(directory, stored), fmt, Arena(room))
    loaded.model = model or stored
    return loaded
