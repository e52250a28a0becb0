"""Names of checkpoints whose layers have states: Qwen3-Next and 3.5, Kimi-Linear, Nemotron-H, Granite 4 and LFM2."""

from helmsman.hwdb.file_names.checkpoint_parts import (
    ATTENTION,
    NETWORK,
    NORMS,
    QWEN_EXPERTS,
    V3_EXPERTS,
    experts,
    renamed,
    shared,
    state_space,
)
from helmsman.hwdb.file_names.rule import fused, plain, shaped, split

_DELTA = (
    *plain(
        {
            "delta_rate.weight": "linear_attn.A_log",
            "delta_offset.weight": "linear_attn.dt_bias",
            "delta_norm": "linear_attn.norm",
            "delta_out": "linear_attn.out_proj",
        }
    ),
    shaped("delta_conv.weight", "linear_attn.conv1d.weight", "taps"),
)
_QWEN_NEXT_EXPERTS = (
    *QWEN_EXPERTS,
    *shared("mlp.shared_expert"),
    *plain({"shared_scale": "mlp.shared_expert_gate"}),
)
QWEN3_NEXT = (
    *_DELTA,
    fused("linear_attn.in_proj_qkvz", "delta_in", "delta_gate", layout="heads"),
    fused("linear_attn.in_proj_ba", "delta_beta", "delta_decay", layout="heads"),
    *_QWEN_NEXT_EXPERTS,
)
QWEN35 = (
    *_DELTA,
    *plain(
        {
            "delta_in": "linear_attn.in_proj_qkv",
            "delta_gate": "linear_attn.in_proj_z",
            "delta_decay": "linear_attn.in_proj_a",
            "delta_beta": "linear_attn.in_proj_b",
        }
    ),
    # Released files have experts stacked, and quantised ones a matrix for each.
    *experts("mlp.experts")[3:],
    *_QWEN_NEXT_EXPERTS,
)
KIMI = (
    *plain(
        {
            "delta_gate_a": "self_attn.g_a_proj",
            "delta_gate": "self_attn.g_b_proj",
            "delta_decay_a": "self_attn.f_a_proj",
            "delta_decay": "self_attn.f_b_proj",
            "delta_beta": "self_attn.b_proj",
            "delta_offset.weight": "self_attn.dt_bias",
            "delta_norm": "self_attn.o_norm",
            "delta_out": "self_attn.o_proj",
        }
    ),
    shaped("delta_rate.weight", "self_attn.A_log", "per-head"),
    split("delta_in", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    split("delta_conv", "self_attn.q_conv1d", "self_attn.k_conv1d", "self_attn.v_conv1d", form="taps"),
    *plain({"router": "block_sparse_moe.gate"}),
    *plain({"correction.weight": "block_sparse_moe.gate.e_score_correction_bias"}),
    *experts("block_sparse_moe.experts", ("w1", "w3", "w2")),
    *shared("block_sparse_moe.shared_experts"),
    *plain(
        {
            "delta_decay_a": "self_attn.forget_gate.f_a_proj",
            "delta_decay": "self_attn.forget_gate.f_b_proj",
            "delta_offset.weight": "self_attn.forget_gate.dt_bias",
        }
    ),
    shaped("delta_rate.weight", "self_attn.forget_gate.A_log", "per-head"),
    shaped("delta_conv.weight", "self_attn.conv1d.weight", "taps"),
    *V3_EXPERTS,
    # transformers 5 writes the dense network of the first layer under the name of experts.
    *renamed(NETWORK, "mlp.", "block_sparse_moe."),
)
NEMOTRON = (
    *renamed(ATTENTION, "self_attn.", "mixer."),
    *renamed(NETWORK, "mlp.", "mixer."),
    *plain(
        {
            "norm1": "norm",
            "router": "mixer.gate",
            "correction.weight": "mixer.gate.e_score_correction_bias",
            "latent_in": "mixer.fc1_latent_proj",
            "latent_out": "mixer.fc2_latent_proj",
        }
    ),
    *state_space("mixer"),
    *experts("mixer.experts"),
    *shared("mixer.shared_experts"),
)
GRANITE = (
    *ATTENTION,
    *NORMS,
    *state_space("mamba"),
    *plain({"router": "block_sparse_moe.router.layer"}),
    fused("block_sparse_moe.input_linear.weight", "experts_gate.weight", "experts_up.weight"),
    *plain({"experts_down.weight": "block_sparse_moe.output_linear.weight"}),
    fused("shared_mlp.input_linear", "shared_gate", "shared_up"),
    fused("shared_mlp.input_linear", "gate", "up"),
    *plain({"shared_down": "shared_mlp.output_linear", "down": "shared_mlp.output_linear"}),
    *plain({"router": "block_sparse_moe.router"}),
    *experts("block_sparse_moe.experts")[3:],
)
LFM2 = (
    *plain(
        {
            "q": "self_attn.q_proj",
            "k": "self_attn.k_proj",
            "v": "self_attn.v_proj",
            "o": "self_attn.out_proj",
            "q_norm": "self_attn.q_layernorm",
            "k_norm": "self_attn.k_layernorm",
            "norm1": "operator_norm",
            "norm2": "ffn_norm",
            "gate": "feed_forward.w1",
            "up": "feed_forward.w3",
            "down": "feed_forward.w2",
            "conv_in": "conv.in_proj",
            "conv_out": "conv.out_proj",
            "conv.bias": "conv.conv.bias",
            "router": "feed_forward.gate",
            "correction.weight": "feed_forward.expert_bias",
        }
    ),
    shaped("conv.weight", "conv.conv.weight", "taps"),
    *experts("feed_forward.experts", ("w1", "w3", "w2")),
)
