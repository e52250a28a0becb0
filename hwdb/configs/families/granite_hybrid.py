"""Reads Granite 4 hybrids: state spaces in all but every tenth layer, experts beside a shared network, or that alone,
and multipliers that every release states."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families.granite import (
    granite_attention,
    granite_experts,
    granite_norm,
    multiplied,
    multiplier,
)
from helmsman.hwdb.configs.parts.assembly import block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_HEADS, hidden_size, layer_count
from helmsman.hwdb.configs.parts.layers import layer_kinds
from helmsman.hwdb.configs.parts.networks import MAX_EXPERTS, gated_network
from helmsman.hwdb.configs.parts.routers import fixed
from helmsman.hwdb.configs.parts.state_space import inner_heads, longest_step
from helmsman.schemas.blocks.block import BodyKind
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.recurrent import StateSpace
from helmsman.schemas.model import Model

_MAMBA = ("mamba", "linear_attention")
_ATTENTION = ("attention", "full_attention")

GRANITE_HYBRID_KEYS = KnownKeys(
    without_effect=frozenset({"mamba_chunk_size", "init_method", "rope_theta", "rope_scaling", "rope_parameters"}),
    one_value={"normalization_function": ("rmsnorm",)},
)


def granite_hybrid(config: Config) -> Model:
    """Return a Granite 4 hybrid, which is planned and not run where a multiplier is missing: no release has the class's
    1."""
    fields = config.fields
    norm = granite_norm(fields)
    kinds = layer_kinds(fields, "layer_types", layer_count(fields), (*_MAMBA, *_ATTENTION))
    rotates = fixed(fields, "position_embedding_type", "nope", "rope") == "rope"
    mixers: dict[bool, tuple[str, BodyKind]] = {
        False: ("A", granite_attention(config, rotates)),
        True: ("M", _state_space(fields, norm)),
    }
    network, scale = _network(fields), multiplier(fields, "residual_multiplier")
    blocks = []
    for kind in kinds:
        letter, mixer = mixers[kind in _MAMBA]
        letter = letter.lower() if isinstance(network, Experts) else letter
        blocks.append(block(letter, norm, mixer, network, scale=scale))
    return multiplied(config, blocks, norm)


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
    return granite_experts(fields, shared)
