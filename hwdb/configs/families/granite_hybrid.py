"""Reads Granite 4 hybrids: state spaces in all but every tenth layer, experts beside a shared network, or that alone,
and multipliers that every release states."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_HEADS, context, grouped_heads, hidden_size, layer_count
from helmsman.hwdb.configs.parts.layers import layer_kinds
from helmsman.hwdb.configs.parts.networks import MAX_EXPERTS, expert_counts, gated_experts, gated_network
from helmsman.hwdb.configs.parts.rope import rope
from helmsman.hwdb.configs.parts.routers import fixed
from helmsman.hwdb.configs.parts.state_space import inner_heads, longest_step
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import BodyKind
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, Router
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.recurrent import StateSpace
from helmsman.schemas.model import Embedding, Head, Model

_MAMBA = ("mamba", "linear_attention")
_ATTENTION = ("attention", "full_attention")
_ROUTER = Router(score="none", weights="softmax-of-chosen", normalised=False)

GRANITE_HYBRID_KEYS = KnownKeys(
    without_effect=frozenset({"mamba_chunk_size", "init_method", "rope_theta", "rope_scaling", "rope_parameters"}),
    one_value={"normalization_function": ("rmsnorm",)},
)


def granite_hybrid(config: Config) -> Model:
    """Return a Granite 4 hybrid, which is planned and not run where a multiplier is missing: no release has the class's
    1."""
    fields = config.fields
    norm = Norm(eps=fields.real("rms_norm_eps", 1e-6, high=1.0))
    kinds = layer_kinds(fields, "layer_types", layer_count(fields), (*_MAMBA, *_ATTENTION))
    mixers: dict[bool, tuple[str, BodyKind]] = {
        False: ("A", _attention(config)),
        True: ("M", _state_space(fields, norm)),
    }
    network, scale = _network(fields), multiplier(fields, "residual_multiplier")
    blocks = []
    for kind in kinds:
        letter, mixer = mixers[kind in _MAMBA]
        letter = letter.lower() if isinstance(network, Experts) else letter
        blocks.append(block(letter, norm, mixer, network, scale=scale))
    return assembled(
        config,
        blocks,
        norm,
        embedding=Embedding(scale=multiplier(fields, "embedding_multiplier")),
        head=Head(divide=multiplier(fields, "logits_scaling")),
        eos=(2,),
    )


def multiplier(fields: Fields, key: str) -> float:
    """Return a multiplier; 1 where it is not stated, with which a model is planned and not run."""
    return fields.real(key, 1.0 if fields.withholds(key) else None)


def _attention(config: Config) -> Attention:
    fields = config.fields
    heads, bias = grouped_heads(fields), fields.flag("attention_bias", False)
    rotates = fixed(fields, "position_embedding_type", "nope", "rope") == "rope"
    return Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=multiplier(fields, "attention_multiplier"),
        qkv_bias=bias,
        out_bias=bias,
        rope=rope(fields, config.family, heads.dim, context(fields)) if rotates else None,
    )


def _state_space(fields: Fields, norm: Norm) -> StateSpace:
    expand = fields.integer("mamba_expand", 2, high=64)
    heads, dim = inner_heads(fields, expand * hidden_size(fields), "mamba_expand x hidden_size")
    groups = fields.integer("mamba_n_groups", high=MAX_HEADS)
    if heads % groups:
        raise fields.wrong("mamba_n_groups", f"must divide mamba_n_heads ({heads})", "correct one of the two")
    return StateSpace(
        heads=heads,
        head_dim=dim,
        state=fields.integer("mamba_d_state"),
        groups=groups,
        taps=fields.integer("mamba_d_conv", 4, low=2, high=64),
        conv_bias=fields.flag("mamba_conv_bias", True),
        bias=fields.flag("mamba_proj_bias", False),
        norm=norm,
        longest_step=longest_step(fields),
    )


def _network(fields: Fields) -> Experts | FeedForward:
    """Return experts beside the shared network, or that alone where there are none."""
    shared = gated_network(fields, "shared_intermediate_size")
    if fields.integer("num_local_experts", low=0, high=MAX_EXPERTS) == 0:
        fields.read.update(("intermediate_size", "num_experts_per_tok"))
        return shared
    counts = expert_counts(fields, "num_local_experts", "num_experts_per_tok")
    return gated_experts(fields, counts, "intermediate_size", _ROUTER, shared=shared)
