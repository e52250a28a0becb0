"""Reads GLM-4.5 and GLM-4.7-Flash: DeepSeek V3's experts behind grouped-query or latent attention; and GLM-5, which
adds an indexer that several layers share."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families.deepseek import deepseek_experts, token_indexer
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_LAYERS, context, grouped_heads, layer_count
from helmsman.hwdb.configs.parts.drafts import next_token_draft
from helmsman.hwdb.configs.parts.latent import latent_attention
from helmsman.hwdb.configs.parts.layers import check_kinds, dense_layers, layer_kinds
from helmsman.hwdb.configs.parts.networks import expert_counts, gated_network
from helmsman.hwdb.configs.parts.rope import RopeRules, rope
from helmsman.hwdb.configs.parts.routers import sigmoid_router
from helmsman.schemas.blocks.attention import Attention, TokenIndexer
from helmsman.schemas.blocks.block import Block
from helmsman.schemas.blocks.feed_forward import Router
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.model import Model

_ROPE = RopeRules(share=0.5)
_INDEXERS = ("full", "shared")
_PATTERN = {"F": "full", "S": "shared"}

GLM4_MOE_KEYS = KnownKeys()
GLM4_LITE_KEYS = KnownKeys(without_effect=frozenset({"head_dim"}))
GLM_DSA_KEYS = KnownKeys(
    # index_share_for_mtp_iteration is about drafts; head_dim is read by no layer of latent attention.
    without_effect=frozenset({"head_dim", "layer_types", "index_share_for_mtp_iteration", "moe_router_dtype"}),
    one_value={"indexer_rope_interleave": (True,), "rope_interleave": (True,)},
)


def glm4_moe(config: Config) -> Model:
    """Return a GLM-4.5: half of each head turns; biases on queries, keys and values alone."""
    fields = config.fields
    heads, norm = grouped_heads(fields), _norm(fields)
    attention = Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qkv_bias=fields.flag("attention_bias", False),
        qk_norm=QueryKeyNorm(norm=norm) if fields.flag("use_qk_norm", False) else None,
        rope=rope(fields, config.family, heads.dim, context(fields), _ROPE),
    )
    sparse = block("a", norm, attention, deepseek_experts(fields, _router(fields, 1.0)))
    plain = block("A", norm, attention, gated_network(fields))
    return _assembled(config, plain, sparse, norm, ())


def glm4_moe_lite(config: Config) -> Model:
    """Return a GLM-4.7-Flash: DeepSeek V3 in other sizes."""
    fields = config.fields
    norm, attention = _norm(fields), latent_attention(config, states_pairs=True)
    sparse = block("l", norm, attention, deepseek_experts(fields, _router(fields, 1.8)))
    plain = block("L", norm, attention, gated_network(fields))
    return _assembled(config, plain, sparse, norm, (1,))


def glm_moe_dsa(config: Config) -> Model:
    """Return a GLM-5: layers that are `shared` see the tokens which the last `full` layer's indexer chose."""
    fields = config.fields
    norm, layers = _norm(fields), layer_count(fields)
    experts, network = deepseek_experts(fields, _router(fields, 2.5)), gated_network(fields)
    blocks = {}
    for indexer, letter in zip(_INDEXERS, ("l", "s"), strict=True):
        attention = latent_attention(config, indexer=_indexer(fields, indexer))
        blocks["sparse", indexer] = block(letter, norm, attention, experts)
        blocks["dense", indexer] = block(letter.upper(), norm, attention, network)
    kinds = zip(dense_layers(fields, layers, 3), _indexer_kinds(fields, layers), strict=True)
    draft = next_token_draft(fields, blocks["sparse", "full"], norm)
    return assembled(config, [blocks[kind] for kind in kinds], norm, eos=(1,), drafts=draft)


def _indexer(fields: Fields, kind: str) -> TokenIndexer:
    """Return an indexer whose keys turn in pairs that lie side by side, or one that takes what the last chose."""
    own = token_indexer(fields).model_copy(update={"pairs": "interleaved"})
    return own if kind == "full" else own.model_copy(update={"selects": "last"})


def _indexer_kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    """Return which layers have an indexer of their own: as listed, by a pattern of letters, or every so many layers."""
    scheduled = _scheduled(fields, layers)
    listed = layer_kinds(fields, "indexer_types", layers, _INDEXERS, scheduled, rule="index_topk_pattern")
    if listed[0] == "shared":
        raise fields.wrong("indexer_types", "the first layer has no indexer before it to share", "correct the list")
    return listed


def _scheduled(fields: Fields, layers: int) -> tuple[str, ...]:
    every = fields.integer("index_topk_freq", 1, high=MAX_LAYERS)
    first = fields.integer("index_skip_topk_offset", 2, low=0, high=MAX_LAYERS)
    if not fields.has("index_topk_pattern"):
        return tuple(_INDEXERS[max(layer - first + 1, 0) % every != 0] for layer in range(layers))
    letters = tuple(_PATTERN.get(letter, letter) for letter in fields.text("index_topk_pattern"))
    check_kinds(fields, "index_topk_pattern", letters, _INDEXERS)
    if len(letters) != layers:
        raise fields.wrong("index_topk_pattern", f"{layers} letters are expected, not {len(letters)}", "correct it")
    return letters


def _router(fields: Fields, scaling: float) -> Router:
    experts = expert_counts(fields, "n_routed_experts", "num_experts_per_tok")[0]
    return sigmoid_router(fields, experts, scaling=scaling)


def _norm(fields: Fields) -> Norm:
    return Norm(eps=fields.real("rms_norm_eps", 1e-5, high=1.0))


def _assembled(config: Config, plain: Block, sparse: Block, norm: Norm, eos: tuple[int, ...]) -> Model:
    fields = config.fields
    kinds = dense_layers(fields, layer_count(fields), 1)
    blocks = [plain if kind == "dense" else sparse for kind in kinds]
    return assembled(config, blocks, norm, eos=eos, drafts=next_token_draft(fields, sparse, norm))
