"""Reads DeepSeek V4: windows everywhere, with entries that pool 4 or 128 tokens in most layers; hidden states in
streams; experts that the first layers choose by the token alone."""

from collections.abc import Mapping
from typing import NamedTuple

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families.deepseek_v4_rope import rotations
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, layer_count
from helmsman.hwdb.configs.parts.drafts import next_token_draft
from helmsman.hwdb.configs.parts.layers import layer_kinds
from helmsman.hwdb.configs.parts.networks import expert_counts, gated_experts, shared_network
from helmsman.hwdb.configs.parts.routers import V3_EPS, fixed
from helmsman.schemas.blocks.attention import CompressedAttention, EntryIndexer
from helmsman.schemas.blocks.block import Block
from helmsman.schemas.blocks.feed_forward import Experts, HyperConnections, Router
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.model import Model

_WINDOW, _SPARSE, _HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
_RATIOS: Mapping[str, int] = {_WINDOW: 0, _SPARSE: 4, _HEAVY: 128}
_NETWORKS = ("hash_moe", "moe")
_LETTERS: Mapping[str, tuple[str, str]] = {_WINDOW: ("x", "w"), _SPARSE: ("y", "s"), _HEAVY: ("z", "h")}
"""Letters of the kinds of attention: in layers whose experts the token alone chooses, and in others."""

DEEPSEEK_V4_KEYS = KnownKeys(
    # head_dim x partial_rotary_factor is what qk_rope_head_dim states.
    without_effect=frozenset({"partial_rotary_factor"}),
    one_value={"norm_topk_prob": (True,)},
)


class _Kind(NamedTuple):
    attention: str
    network: str


def deepseek_v4(config: Config) -> Model:
    """Return a DeepSeek V4."""
    fields = config.fields
    norm, layers = _norm(fields), layer_count(fields)
    attentions, draft_attention = _attentions(fields, layers)
    kinds = [_Kind(*kind) for kind in zip(attentions, _networks(fields, layers), strict=True)]
    blocks = {kind: _block(config, kind) for kind in dict.fromkeys(kinds)}
    draft = _block(config, _Kind(draft_attention, "moe"))
    streams = HyperConnections(
        streams=fields.integer("hc_mult", 4, high=64),
        iterations=fields.integer("hc_sinkhorn_iters", 20, high=10**6),
        eps=fields.real("hc_eps", 1e-6, high=1.0),
    )
    drafts = next_token_draft(fields, draft, norm)
    return assembled(config, [blocks[kind] for kind in kinds], norm, eos=(1,), drafts=drafts, streams=streams)


def _norm(fields: Fields) -> Norm:
    return Norm(eps=fields.real("rms_norm_eps", 1e-6, high=1.0))


def _attentions(fields: Fields, layers: int) -> tuple[tuple[str, ...], str]:
    """Return the kind of attention of every layer, and that of draft heads, whose ratio follows those of layers."""
    if fields.has("layer_types") or not fields.has("compress_ratios"):
        if fields.has("compress_rates"):
            rates = fields.inner("compress_rates")
            for kind in (_SPARSE, _HEAVY):
                if rates.integer(kind, _RATIOS[kind]) != _RATIOS[kind]:
                    raise rates.wrong(kind, "not covered: another ratio", f"covered: {_RATIOS[kind]}")
        return layer_kinds(fields, "layer_types", layers, tuple(_RATIOS)), _WINDOW
    ratios = fields.numbers("compress_ratios", 2**20)
    drafts = fields.integer("num_nextn_predict_layers", 0, low=0, high=MAX_LAYERS)
    if not layers <= len(ratios) <= layers + max(drafts, 1):
        raise fields.wrong("compress_ratios", f"{layers} layers are expected, not {len(ratios)}", "correct the list")
    of_ratio = {ratio: kind for kind, ratio in _RATIOS.items()}
    for ratio in ratios:
        if ratio not in of_ratio:
            raise fields.wrong("compress_ratios", f"not covered: a ratio of {ratio}", "covered: 0, 4, 128")
    kinds = tuple(of_ratio[ratio] for ratio in ratios)
    return kinds[:layers], kinds[layers] if len(kinds) > layers else _WINDOW


def _networks(fields: Fields, layers: int) -> tuple[str, ...]:
    """Return which layers choose experts by the token alone: as listed, or the first so many."""
    if fields.has("mlp_layer_types"):
        fields.read.add("num_hash_layers")
        return layer_kinds(fields, "mlp_layer_types", layers, _NETWORKS)
    first = fields.integer("num_hash_layers", min(3, layers), low=0, high=layers)
    return tuple(_NETWORKS[layer >= first] for layer in range(layers))


def _block(config: Config, kind: _Kind) -> Block:
    letter = _LETTERS[kind.attention][kind.network == "moe"]
    return block(
        letter, _norm(config.fields), _attention(config, kind.attention), _experts(config.fields, kind.network)
    )


def _attention(config: Config, kind: str) -> CompressedAttention:
    fields = config.fields
    head_dim = fields.integer("head_dim", high=MAX_HEADS)
    if fields.integer("num_key_value_heads", 1) != 1:
        raise fields.wrong("num_key_value_heads", "not covered: keys of several heads", "covered: 1")
    heads, groups = fields.integer("num_attention_heads", high=MAX_HEADS), fields.integer("o_groups", high=MAX_HEADS)
    if heads % groups:
        raise fields.wrong("o_groups", f"must divide num_attention_heads ({heads})", "correct it")
    indexer = EntryIndexer(
        heads=fields.integer("index_n_heads", high=MAX_HEADS),
        head_dim=fields.integer("index_head_dim", high=MAX_HEADS),
        top_k=fields.integer("index_topk"),
    )
    turned = rotations(fields, head_dim)
    return CompressedAttention(
        heads=heads,
        head_dim=head_dim,
        query_rank=fields.integer("q_lora_rank"),
        out_groups=groups,
        out_rank=fields.integer("o_lora_rank"),
        scale=head_dim**-0.5,
        norm=_norm(fields),
        rope=turned.window if kind == _WINDOW else turned.compressed,
        window=fields.integer("sliding_window", 128, high=MAX_CONTEXT),
        ratio=_RATIOS[kind] or None,
        overlap=kind == _SPARSE,
        indexer=indexer if kind == _SPARSE else None,
    )


def _experts(fields: Fields, network: str) -> Experts:
    counts = expert_counts(fields, "n_routed_experts", "num_experts_per_tok")
    fixed(fields, "scoring_func", "sqrtsoftplus")
    fixed(fields, "topk_method", "noaux_tc")
    by_token = network == "hash_moe"
    router = Router(
        score="sqrt-softplus",
        correction=not by_token,
        choice="hash" if by_token else "scores",
        normalise_eps=V3_EPS,
        scaling=fields.real("routed_scaling_factor", 1.5),
    )
    clamp, width = fields.real("swiglu_limit", 10.0), fields.integer("moe_intermediate_size")
    shared = shared_network(fields, "n_shared_experts", width, 1, clamp=clamp)
    return gated_experts(fields, counts, "moe_intermediate_size", router, shared=shared, clamp=clamp)
