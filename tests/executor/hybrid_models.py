"""Tiny models whose layers keep states: transformers' own, written as a checkpoint, and the same as a stage."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from expert_models import CAPACITY, OnTorch, Told
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.tensors import NormVectors
from helmsman.executor.stages.block_part import StageCache
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.layer_cache import cache_of
from helmsman.schemas.formats import StoredFormat, rows_size
from helmsman.schemas.model import Model

COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_DELTA: dict[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_next": {**_DELTA, **_EXPERTS, "norm_topk_prob": True},
    "qwen3_5_text": {**_DELTA, "intermediate_size": 96},
    "qwen3_5_moe_text": {**_DELTA, **_EXPERTS},
    "kimi_linear": {
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 96,
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_token": 3,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        "num_expert_group": 1,
        "topk_group": 1,
        "moe_renormalize": True,
        "routed_scaling_factor": 2.446,
        "q_lora_rank": None,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "linear_attn_config": {
            "kda_layers": [1, 2, 4],
            "full_attn_layers": [3],
            "num_heads": 4,
            "head_dim": 16,
            "short_conv_kernel_size": 4,
        },
    },
    "lfm2": {
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
    },
    "lfm2_moe": {
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "num_dense_layers": 1,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
    },
    "granitemoehybrid": {
        "num_hidden_layers": 4,
        "layer_types": ["mamba", "attention", "mamba", "mamba"],
        "intermediate_size": 32,
        "shared_intermediate_size": 48,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 16,
        "mamba_n_groups": 2,
        "mamba_expand": 2,
        "position_embedding_type": "nope",
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
        "logits_scaling": 2.0,
    },
    "falcon_h1": {
        "num_hidden_layers": 3,
        "head_dim": 16,
        "intermediate_size": 96,
        "mamba_d_ssm": 128,
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 16,
        "mamba_n_groups": 2,
        "mamba_expand": 2,
        "mamba_rms_norm": False,
        "mamba_norm_before_gate": False,
        "embedding_multiplier": 3.0,
        "lm_head_multiplier": 0.5,
        "key_multiplier": 0.6,
        "attention_in_multiplier": 0.9,
        "attention_out_multiplier": 0.7,
        "ssm_in_multiplier": 1.2,
        "ssm_out_multiplier": 0.8,
        "mlp_multipliers": [0.8, 0.6],
        "ssm_multipliers": [0.7, 0.9, 0.8, 0.6, 0.5],
    },
    "nemotron_h": {
        "layers_block_type": ["mamba", "moe", "attention", "mamba", "mlp"],
        "num_hidden_layers": 5,
        "head_dim": 16,
        "intermediate_size": 96,
        "mamba_num_heads": 8,
        "mamba_head_dim": 12,
        "ssm_state_size": 16,
        "n_groups": 2,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 48,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "mlp_hidden_act": "relu2",
    },
}
"""By family, what its config says beside `COMMON`."""

_AROUND_ZERO = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
"""Families whose norms of hidden states and heads store 1 less than their weights."""


def written_hybrid(family: str, directory: Path, spread: float = 0.2, **changes: Any) -> Any:
    """Write a random model of a family, whose states last for tens of tokens; return transformers' own.

    `spread`: the standard deviation of matrices' values."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **{**COMMON, **FAMILIES[family], **changes}, dtype="float32")
    torch.manual_seed(6)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    for module in model.modules():
        if family == "nemotron_h" and hasattr(module, "time_step_limit"):
            # The library cuts time steps from below in prompts, and not in later steps.
            module.time_step_limit = (0.0, float("inf"))
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                value.normal_(0, 0.2)
            elif name.endswith("A_log"):
                value.normal_(-1.5, 0.7)
            elif name.endswith("dt_bias"):
                value.normal_(-1.0, 0.5)
            elif value.dtype.is_floating_point and not name.endswith(("inv_freq", "mup_vector")):
                plain = value.dim() == 1 and not name.endswith("bias")
                zero = family in _AROUND_ZERO and "linear_attn.norm" not in name
                value.normal_(0, spread if value.dim() > 1 else 0.1).add_(float(plain and not zero))
                if name.endswith(("gate.weight", "router.weight")):
                    value.mul_(2.0)
                if name.endswith(("q_norm.weight", "k_norm.weight", "layernorm.weight")) and "self_attn" in name:
                    value.add_(1.0)  # scores that differ
    model.save_pretrained(directory)
    return model


class HybridTold(Told):
    """A part of a plan with all operations of a model, which has states for one sequence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows: dict[int, Any] = {}

    def values(self, name: str, layer: int | None) -> NDArray[np.float32] | None:
        """f32 of the checkpoint, as operations read them."""
        values = super().values(name, layer)
        tensor = self._tensors.get((name, layer))
        return None if values is None or tensor is None else self.checkpoint.computed(tensor, values)

    def norm(self, op: str, layer: int | None) -> NormVectors | None:
        """Return scale and shift, or taps and bias."""
        weight = self.vector(op, op, layer)
        bias = self.values(f"{op}.bias", layer)
        return None if weight is None else {"weight": weight, "bias": None if bias is None else self.kept(bias)}

    def cache(self, layer: int) -> StageCache:
        """Return a cache of f32; of latent attention one row a token."""
        cache = cache_of(self.model, layer)
        if cache is None or cache.value_dim:
            return super().cache(layer)
        if layer not in self._rows:
            self._rows[layer] = self.room(CAPACITY * rows_size(1, cache.key_dim, "f32"))
        return StageCache(self._rows[layer], None, [], [])

    def tiled(self) -> bool:
        """Whether value heads are tiled, as those of some GGUF files are."""
        return self.checkpoint.tiled

    def states(self, op: str, layer: int, width: int) -> Buffer:
        """Return memory for the states of an operation, with what something else has left there."""
        return self.kept_states(np.full(width, 3.0, np.float32))

    def snapshots(self) -> int:
        """Return 0: no tokens are taken back."""
        return 0

    def kept_states(self, values: NDArray[np.float32]) -> Buffer:
        """Return writable memory with these values."""
        buffer = self.arena.alloc(values.nbytes, "states")
        np.frombuffer(memoryview(buffer), np.float32)[: values.size] = values
        return buffer


class HybridOnTorch(OnTorch, HybridTold):
    """A part of a plan with all operations of a model, with weights and states in the memory of a PyTorch device."""

    def kept_states(self, values: NDArray[np.float32]) -> Buffer:
        """Return writable memory with these values."""
        kept: Buffer = self.kept(values)
        return kept


def opened_hybrid(
    directory: Path,
    fmt: StoredFormat = "f32",
    kind: type[HybridTold] = HybridTold,
    model: Model | None = None,
    room: int = 64 << 20,
) -> HybridTold:
    """Return the model of a checkpoint, or another that is computed with its weights, in `room` bytes."""
    stored = load_model(str(directory / "config.json"))
    loaded = kind(stored, Checkpoint.open(directory, stored), fmt, Arena(room))
    loaded.model = model or stored
    return loaded
