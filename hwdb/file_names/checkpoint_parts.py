"""Rules that the names of several families of checkpoints share."""

from collections.abc import Sequence

from helmsman.hwdb.file_names.rule import EXPERT, NameRule, fused, plain, shaped

DECODER_ENDS = plain({"embedding": "embed_tokens", "final_norm": "norm"})
HEAD = plain({"head": "lm_head"})

ATTENTION = plain({"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj"})
QK_NORM = plain({"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"})
NETWORK = plain({"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"})
NORMS = plain({"norm1": "input_layernorm", "norm2": "post_attention_layernorm"})

LATENT = (
    *plain(
        {
            "q": "self_attn.q_proj",
            "q_a": "self_attn.q_a_proj",
            "q_norm": "self_attn.q_a_layernorm",
            "q_b": "self_attn.q_b_proj",
            "kv_a": "self_attn.kv_a_proj_with_mqa",
            "kv_norm": "self_attn.kv_a_layernorm",
            "o": "self_attn.o_proj",
        }
    ),
    fused("self_attn.kv_b_proj", "k_b", "v_b", layout="latent"),
)
INDEXER = plain(
    {
        "index_q": "self_attn.indexer.wq_b",
        "index_k": "self_attn.indexer.wk",
        "index_weights": "self_attn.indexer.weights_proj",
        "index_k_norm": "self_attn.indexer.k_norm",
    }
)


def experts(place: str, names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> tuple[NameRule, ...]:
    """Return the rules of experts at `place`: gate, up and down with a matrix for each expert, called `names`; and
    stacked, gate before up, as transformers 5 saves them, with up alone where nothing is gated."""
    each = plain(
        {
            f"experts_{ours}": f"{place}.{EXPERT}.{name}"
            for ours, name in zip(("gate", "up", "down"), names, strict=True)
        }
    )
    return (
        *each,
        fused(f"{place}.gate_up_proj", "experts_gate.weight", "experts_up.weight"),
        *plain({"experts_up.weight": f"{place}.up_proj", "experts_down.weight": f"{place}.down_proj"}),
    )


def shared(place: str) -> tuple[NameRule, ...]:
    """Return the rules of the network that all tokens go through."""
    return plain({f"shared_{name}": f"{place}.{name}_proj" for name in ("gate", "up", "down")})


def state_space(place: str) -> tuple[NameRule, ...]:
    """Return the rules of a Mamba-2 mixer."""
    return (
        *plain(
            {
                "scan_in": f"{place}.in_proj",
                "scan_conv.bias": f"{place}.conv1d.bias",
                "scan_rate.weight": f"{place}.A_log",
                "scan_offset.weight": f"{place}.dt_bias",
                "scan_pass.weight": f"{place}.D",
                "scan_norm": f"{place}.norm",
                "scan_out": f"{place}.out_proj",
            }
        ),
        shaped("scan_conv.weight", f"{place}.conv1d.weight", "taps"),
    )


def renamed(rules: Sequence[NameRule], before: str, after: str) -> tuple[NameRule, ...]:
    """Return rules whose names in the file begin otherwise."""
    return tuple(rule._replace(files=tuple(after + name.removeprefix(before) for name in rule.files)) for rule in rules)


QWEN_EXPERTS = (*plain({"router": "mlp.gate"}), *experts("mlp.experts"))
V3_EXPERTS = (
    *QWEN_EXPERTS,
    *plain({"correction.weight": "mlp.gate.e_score_correction_bias"}),
    *shared("mlp.shared_experts"),
)
