"""Reads DeepSeek V2, V3, V3.2 and Kimi-K2: latent attention, dense networks first, then experts beside shared ones."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_HEADS, layer_count
from helmsman.hwdb.configs.parts.drafts import next_token_draft
from helmsman.hwdb.configs.parts.latent import latent_attention
from helmsman.hwdb.configs.parts.layers import dense_layers
from helmsman.hwdb.configs.parts.networks import expert_counts, gated_experts, gated_network, shared_network
from helmsman.hwdb.configs.parts.routers import fixed, router_groups, sigmoid_router
from helmsman.schemas.blocks.attention import TokenIndexer
from helmsman.schemas.blocks.feed_forward import Experts, Router
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.model import Model

_EXPERTS = ("n_routed_experts", "num_experts")
"""The keys that state the number of experts; some files have both."""

# transformers 5 writes head_dim (that of the rotated part) and layer_types, which all its layers have alike.
_LATENT = frozenset({"head_dim"})

DEEPSEEK_V2_KEYS = KnownKeys(
    without_effect=_LATENT | {"norm_topk_prob"}, one_value={"scoring_func": ("softmax",), "rope_interleave": (True,)}
)
DEEPSEEK_V3_KEYS = KnownKeys(without_effect=_LATENT)
DEEPSEEK_V32_KEYS = KnownKeys(without_effect=_LATENT | {"layer_types"}, one_value={"rope_interleave": (True,)})


def deepseek_v2(config: Config) -> Model:
    """Return a DeepSeek V2: softmax scores that are not divided by their sum, whatever norm_topk_prob says."""
    fields = config.fields
    experts = expert_counts(fields, _EXPERTS, "num_experts_per_tok")[0]
    method = fixed(fields, "topk_method", "greedy", "group_limited_greedy")
    groups = router_groups(fields, experts, "n_group", "topk_group", 1, 1, by_best=True)
    router = Router(
        score="softmax",
        groups=groups if method == "group_limited_greedy" else None,
        normalised=False,
        scaling=fields.real("routed_scaling_factor", 1.0),
    )
    return _assembled(config, deepseek_experts(fields, router, shared=2), dense=0, eos=2)


def deepseek_v3(config: Config) -> Model:
    """Return a DeepSeek V3 or R1, or a Kimi-K2."""
    fields = config.fields
    return _assembled(config, deepseek_experts(fields, v3_router(fields)), dense=3, states_pairs=True)


def deepseek_v32(config: Config) -> Model:
    """Return a DeepSeek V3.2: V3 with an indexer that chooses the tokens which latent attention sees."""
    fields = config.fields
    return _assembled(config, deepseek_experts(fields, v3_router(fields)), dense=3, indexer=token_indexer(fields))


def v3_router(fields: Fields) -> Router:
    """Return V3's router with the defaults of V3's class."""
    experts = expert_counts(fields, _EXPERTS, "num_experts_per_tok")[0]
    return sigmoid_router(fields, experts, groups=8, kept=4, scaling=2.5)


def token_indexer(fields: Fields) -> TokenIndexer:
    """Return the indexer of sparse attention, whose keys turn in halves."""
    return TokenIndexer(
        heads=fields.integer("index_n_heads", high=MAX_HEADS),
        head_dim=fields.integer("index_head_dim", high=MAX_HEADS),
        top_k=fields.integer("index_topk"),
        pairs="half",
    )


def deepseek_experts(fields: Fields, router: Router, shared: int = 1) -> Experts:
    """Return routed experts beside shared ones, which make one network; `shared`: the class's default count."""
    counts = expert_counts(fields, _EXPERTS, "num_experts_per_tok")
    width = fields.integer("moe_intermediate_size")
    network = shared_network(fields, "n_shared_experts", width, shared)
    return gated_experts(fields, counts, "moe_intermediate_size", router, shared=network)


def _assembled(
    config: Config,
    experts: Experts,
    dense: int,
    *,
    eos: int = 1,
    states_pairs: bool = False,
    indexer: TokenIndexer | None = None,
) -> Model:
    fields = config.fields
    norm = Norm(eps=fields.real("rms_norm_eps", 1e-6, high=1.0))
    attention = latent_attention(config, states_pairs=states_pairs, indexer=indexer)
    kinds = dense_layers(fields, layer_count(fields), dense)
    sparse = block("l", norm, attention, experts)
    plain = block("L", norm, attention, gated_network(fields))
    blocks = [plain if kind == "dense" else sparse for kind in kinds]
    return assembled(config, blocks, norm, eos=(eos,), drafts=next_token_draft(fields, sparse, norm))
