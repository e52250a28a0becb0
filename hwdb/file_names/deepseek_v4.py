"""What checkpoints of DeepSeek V4 call tensors: the released names, and those of transformers 5."""

from helmsman.hwdb.file_names.checkpoint_parts import HEAD, NORMS, experts, shared
from helmsman.hwdb.file_names.rule import NameRule, NameTable, Root, plain

_ROOTS = (Root("", "layers.{layer}."), Root("model.", "model.layers.{layer}."))
_RELEASED_ENDS = plain(
    {
        "embedding": "embed",
        "final_norm": "norm",
        "merge.weight": "hc_head_fn",
        "merge_offset.weight": "hc_head_base",
        "merge_scale.weight": "hc_head_scale",
    }
)
_ENDS = plain(
    {
        "embedding": "embed_tokens",
        "merge.weight": "hc_head.hc_fn",
        "merge_offset.weight": "hc_head.hc_base",
        "merge_scale.weight": "hc_head.hc_scale",
    }
)
_RELEASED = plain(
    {
        "norm1": "attn_norm",
        "norm2": "ffn_norm",
        "q_a": "attn.wq_a",
        "q_norm": "attn.q_norm",
        "q_b": "attn.wq_b",
        "kv": "attn.wkv",
        "kv_norm": "attn.kv_norm",
        "o_a": "attn.wo_a",
        "o_b": "attn.wo_b",
        "sinks.weight": "attn.attn_sink",
        "pool_values": "attn.compressor.wkv",
        "pool_gates": "attn.compressor.wgate",
        "pool_places.weight": "attn.compressor.ape",
        "pool_norm": "attn.compressor.norm",
        "index_q": "attn.indexer.wq_b",
        "index_weights": "attn.indexer.weights_proj",
        "index_pool_values": "attn.indexer.compressor.wkv",
        "index_pool_gates": "attn.indexer.compressor.wgate",
        "index_pool_places.weight": "attn.indexer.compressor.ape",
        "index_pool_norm": "attn.indexer.compressor.norm",
        "router": "ffn.gate",
        "correction.weight": "ffn.gate.bias",
        "shared_gate": "ffn.shared_experts.w1",
        "shared_up": "ffn.shared_experts.w3",
        "shared_down": "ffn.shared_experts.w2",
    }
)
_SAVED = plain(
    {
        "q_a": "self_attn.q_a_proj",
        "q_norm": "self_attn.q_a_norm",
        "q_b": "self_attn.q_b_proj",
        "kv": "self_attn.kv_proj",
        "kv_norm": "self_attn.kv_norm",
        "o_a": "self_attn.o_a_proj",
        "o_b": "self_attn.o_b_proj",
        "sinks.weight": "self_attn.sinks",
        "pool_values": "self_attn.compressor.kv_proj",
        "pool_gates": "self_attn.compressor.gate_proj",
        "pool_places.weight": "self_attn.compressor.position_bias",
        "pool_norm": "self_attn.compressor.kv_norm",
        "index_q": "self_attn.compressor.indexer.q_b_proj",
        "index_weights": "self_attn.compressor.indexer.scorer.weights_proj",
        "index_pool_values": "self_attn.compressor.indexer.kv_proj",
        "index_pool_gates": "self_attn.compressor.indexer.gate_proj",
        "index_pool_places.weight": "self_attn.compressor.indexer.position_bias",
        "index_pool_norm": "self_attn.compressor.indexer.kv_norm",
        "router": "mlp.gate",
        "correction.weight": "mlp.gate.e_score_correction_bias",
    }
)


def _mixing(number: int, released: str, saved: str) -> tuple[NameRule, ...]:
    """Return the rules of what mixes streams around a body."""
    ours = (f"mix{number}.weight", f"mix{number}_offset.weight", f"mix{number}_scale.weight")
    names = ("fn", "base", "scale")
    return (
        *plain({our: f"hc_{released}_{name}" for our, name in zip(ours, names, strict=True)}),
        *plain({our: f"{saved}.{name}" for our, name in zip(ours, names, strict=True)}),
    )


DEEPSEEK_V4 = NameTable(
    _ROOTS,
    (*_RELEASED_ENDS, *_ENDS),
    (
        *_RELEASED,
        *experts("ffn.experts", ("w1", "w3", "w2"))[:3],
        *_mixing(1, "attn", "attn_hc"),
        *_mixing(2, "ffn", "ffn_hc"),
        *_SAVED,
        *NORMS,
        *experts("mlp.experts")[3:],
        *shared("mlp.shared_experts"),
    ),
    (*plain({"head": "head"}), *HEAD),
)
"""Its names."""
