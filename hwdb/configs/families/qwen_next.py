"""Reads Qwen3-Next, Qwen3.5 and 3.6: gated delta rules in all but every fourth layer, whose attention has an output
gate, and experts beside a gated shared one, or dense networks."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families.mixtral_like import routed_layers
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_HEADS, MAX_LAYERS, context, grouped_heads, layer_count
from helmsman.hwdb.configs.parts.layers import every_nth, layer_kinds
from helmsman.hwdb.configs.parts.networks import expert_counts, gated_experts, gated_network
from helmsman.hwdb.configs.parts.rope import RopeRules, rope
from helmsman.hwdb.configs.parts.routers import softmax_router
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import BodyKind
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, Router
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.recurrent import DeltaRule
from helmsman.schemas.model import DraftHead, Model

_HEAD_DIM = 256
_KINDS = ("full_attention", "linear_attention")
_ROPE = RopeRules(share=0.25)

QWEN3_NEXT_KEYS = KnownKeys(without_effect=frozenset({"intermediate_size"}))
QWEN35_KEYS = KnownKeys(
    # The dtype of the state says how exact it is kept, not what is computed.
    without_effect=frozenset({"mamba_ssm_dtype"}),
    one_value={"output_gate_type": ("swish", "silu"), "mlp_only_layers": ([],)},
)


def qwen3_next(config: Config) -> Model:
    """Return a Qwen3-Next. Its config says nothing about the draft head that released files have."""
    fields = config.fields
    layers = layer_count(fields)
    experts = _experts(fields, softmax_router(fields, "norm_topk_prob", True))
    networks: list[Experts | FeedForward] = [experts] * layers
    for layer, has_experts in enumerate(routed_layers(fields, layers)):
        if not has_experts:
            networks[layer] = gated_network(fields)
    return _assembled(config, networks, ())


def qwen35_moe(config: Config) -> Model:
    """Return the text model of a Qwen3.5 or 3.6 with experts, whose scores are always divided by their sum."""
    fields = config.fields
    experts = _experts(fields, softmax_router(fields, None))
    return _assembled(config, [experts] * layer_count(fields), _drafts(config, experts))


def qwen35(config: Config) -> Model:
    """Return the text model of a dense Qwen3.5 or 3.6."""
    network = gated_network(config.fields)
    return _assembled(config, [network] * layer_count(config.fields), _drafts(config, network))


def _assembled(config: Config, networks: list[Experts | FeedForward], drafts: tuple[DraftHead, ...]) -> Model:
    fields = config.fields
    norm, layers = _norm(fields), layer_count(fields)
    interval = fields.integer("full_attention_interval", 4, high=MAX_LAYERS)
    counted = every_nth(layers, interval, _KINDS[0], _KINDS[1])
    kinds = layer_kinds(fields, "layer_types", layers, _KINDS, counted, rule="full_attention_interval")
    mixers: dict[str, tuple[str, BodyKind]] = {
        _KINDS[0]: ("A", _attention(config)),
        _KINDS[1]: ("G", _delta_rule(fields)),
    }
    blocks = []
    for kind, network in zip(kinds, networks, strict=True):
        letter, mixer = mixers[kind]
        blocks.append(block(letter.lower() if isinstance(network, Experts) else letter, norm, mixer, network))
    return assembled(config, blocks, norm, drafts=drafts)


def _norm(fields: Fields) -> Norm:
    return Norm(eps=fields.real("rms_norm_eps", 1e-6, high=1.0), offset=True)


def _attention(config: Config) -> Attention:
    fields = config.fields
    heads, bias = grouped_heads(fields, _HEAD_DIM), fields.flag("attention_bias", False)
    if not fields.flag("attn_output_gate", True):
        raise fields.wrong("attn_output_gate", "not covered: attention without its gate", "covered: true")
    return Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=QueryKeyNorm(norm=_norm(fields)),
        rope=rope(fields, config.family, heads.dim, context(fields), _ROPE),
        output_gate=True,
    )


def _delta_rule(fields: Fields) -> DeltaRule:
    key_heads = fields.integer("linear_num_key_heads", high=MAX_HEADS)
    value_heads = fields.integer("linear_num_value_heads", high=MAX_HEADS)
    if value_heads % key_heads:
        raise fields.wrong(
            "linear_num_value_heads", f"must be a multiple of linear_num_key_heads ({key_heads})", "correct it"
        )
    return DeltaRule(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=fields.integer("linear_key_head_dim", high=MAX_HEADS),
        value_dim=fields.integer("linear_value_head_dim", high=MAX_HEADS),
        taps=fields.integer("linear_conv_kernel_dim", 4, low=2, high=64),
        norm=Norm(eps=_norm(fields).eps),
    )


def _experts(fields: Fields, router: Router) -> Experts:
    shared = gated_network(fields, "shared_expert_intermediate_size")
    counts = expert_counts(fields, ("num_experts", "num_local_experts"), "num_experts_per_tok")
    return gated_experts(fields, counts, "moe_intermediate_size", router, shared=shared, shared_gate=True)


def _drafts(config: Config, network: Experts | FeedForward) -> tuple[DraftHead, ...]:
    """Return the draft head: a block of full attention, behind a matrix over embedding and hidden state."""
    fields = config.fields
    count = fields.integer("mtp_num_hidden_layers", 0, low=0, high=MAX_LAYERS)
    own = fields.flag("mtp_use_dedicated_embeddings", False)
    if not count:
        return ()
    norm = _norm(fields)
    layer = block("a" if isinstance(network, Experts) else "A", norm, _attention(config), network)
    return (DraftHead(block=layer, norm=norm, count=count, own_embedding=own),)
