"""Reads Nemotron-H and Nemotron 3, whose layers have one residual: a state space, attention without positions, a
network of squared rectifiers, or experts of such."""

from collections.abc import Mapping, Sequence

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_HEADS, MAX_LAYERS, kv_heads, layer_count
from helmsman.hwdb.configs.parts.layers import check_kinds
from helmsman.hwdb.configs.parts.networks import expert_counts
from helmsman.hwdb.configs.parts.routers import fixed, sigmoid_router
from helmsman.hwdb.configs.parts.state_space import longest_step
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import BodyKind
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.recurrent import StateSpace
from helmsman.schemas.model import DraftHead, Model

_LETTERS: Mapping[str, str] = {"M": "M", "*": "A", "-": "F", "E": "e"}
"""Letters of layers, by the characters of hybrid_override_pattern."""

_CHARACTERS: Mapping[str, str] = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}
"""Characters of the kinds that transformers 5 lists instead."""

_HEAD_DIM = 128

_UNUSED = """
chunk_size expand mamba_ssm_cache_dtype moe_shared_expert_overlap norm_eps partial_rotary_factor rms_norm_eps rope_theta
"""
"""Attention has no positions; of the keys for eps, layer_norm_epsilon is read; chunks only group the work."""

_OF_SOME_LAYERS = """
intermediate_size moe_intermediate_size moe_latent_size moe_shared_expert_intermediate_size mlp_hidden_act
mtp_hybrid_override_pattern mtp_layers_block_type n_group n_routed_experts n_shared_experts norm_topk_prob
num_experts_per_tok routed_scaling_factor topk_group
"""
"""Keys that are read where some layer needs them."""

NEMOTRON_H_KEYS = KnownKeys(
    without_effect=frozenset(f"{_UNUSED} {_OF_SOME_LAYERS}".split()),
    one_value={"mamba_proj_bias": (False,), "sliding_window": ()},
)


def nemotron_h(config: Config) -> Model:
    """Return a Nemotron-H."""
    fields = config.fields
    norm = _norm(fields)
    characters = _pattern(fields, "hybrid_override_pattern", "layers_block_type")
    if fields.has("num_hidden_layers") and layer_count(fields) != len(characters):
        message = f"differs from the {len(characters)} layers of the pattern"
        raise fields.wrong("num_hidden_layers", message, "correct one of the two")
    operations = {character: _operation(fields, character) for character in dict.fromkeys(characters)}
    blocks = [block(_LETTERS[character], norm, operations[character]) for character in characters]
    return assembled(config, blocks, norm, eos=(2,), drafts=_drafts(fields))


def _norm(fields: Fields) -> Norm:
    return Norm(eps=fields.real("layer_norm_epsilon", 1e-5, high=1.0))


def _pattern(fields: Fields, pattern: str, listed: str) -> Sequence[str]:
    """Return the character of every layer, from a text of characters or a list of kinds."""
    if fields.has(listed):
        names = fields.texts(listed)
        check_kinds(fields, listed, names, _CHARACTERS)
        key, characters = listed, "".join(_CHARACTERS[name] for name in names)
        if fields.has(pattern) and fields.text(pattern) != characters:
            raise fields.wrong(pattern, f"contradicts {listed}", "correct one of the two")
    else:
        key, characters = pattern, fields.text(pattern)
        check_kinds(fields, pattern, characters, tuple(_LETTERS))
    if not 0 < len(characters) <= MAX_LAYERS:
        raise fields.wrong(key, f"1 to {MAX_LAYERS} layers are expected", "correct it")
    return characters


def _operation(fields: Fields, character: str) -> BodyKind:
    match character:
        case "M":
            return _state_space(fields)
        case "*":
            return _attention(fields)
        case "-":
            fixed(fields, "mlp_hidden_act", "relu2")
            return FeedForward(width=fields.integer("intermediate_size"), activation="relu2", gated=False)
    return _experts(fields)


def _state_space(fields: Fields) -> StateSpace:
    heads, groups = fields.integer("mamba_num_heads", high=MAX_HEADS), fields.integer("n_groups", 8, high=MAX_HEADS)
    if heads % groups:
        raise fields.wrong("n_groups", f"must divide mamba_num_heads ({heads})", "correct one of the two")
    fixed(fields, "mamba_hidden_act", "silu")
    return StateSpace(
        heads=heads,
        head_dim=fields.integer("mamba_head_dim", high=MAX_HEADS),
        state=fields.integer("ssm_state_size"),
        groups=groups,
        taps=fields.integer("conv_kernel", 4, low=2, high=64),
        conv_bias=fields.flag("use_conv_bias", True),
        bias=fields.flag("use_bias", False),
        norm=_norm(fields),
        longest_step=longest_step(fields),
    )


def _attention(fields: Fields) -> Attention:
    heads = fields.integer("num_attention_heads", high=MAX_HEADS)
    dims = {key: fields.integer(key, high=MAX_HEADS) for key in ("head_dim", "attention_head_dim") if fields.has(key)}
    if len(set(dims.values())) > 1:
        raise fields.wrong(
            "attention_head_dim", f"differs from head_dim ({dims['head_dim']})", "correct one of the two"
        )
    dim = next(iter(dims.values()), _HEAD_DIM)
    shared = kv_heads(fields, heads)
    return Attention(heads=heads, kv_heads=shared, head_dim=dim, value_dim=dim, scale=dim**-0.5)


def _experts(fields: Fields) -> Experts:
    experts, chosen = expert_counts(fields, "n_routed_experts", "num_experts_per_tok")
    fixed(fields, "mlp_hidden_act", "relu2")
    if fields.integer("n_shared_experts", 1, low=0) != 1:
        raise fields.wrong("n_shared_experts", "not covered: another number of shared experts", "covered: 1")
    shared = fields.integer("moe_shared_expert_intermediate_size")
    return Experts(
        experts=experts,
        chosen=chosen,
        width=fields.integer("moe_intermediate_size"),
        activation="relu2",
        gated=False,
        latent=fields.integer("moe_latent_size") if fields.has("moe_latent_size") else None,
        router=sigmoid_router(fields, experts),
        shared=FeedForward(width=shared, activation="relu2", gated=False),
    )


def _drafts(fields: Fields) -> tuple[DraftHead, ...]:
    """Return the draft heads, whose block has one residual per character of a pattern of their own."""
    count = fields.integer("num_nextn_predict_layers", 0, low=0, high=MAX_LAYERS)
    if not count:
        return ()
    characters = _pattern(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if len(set(characters)) < len(characters):
        key = "mtp_hybrid_override_pattern"
        raise fields.wrong(key, "not covered: a layer of one kind twice in a draft head", "covered: *E")
    operations = [_operation(fields, character) for character in characters]
    letter = _LETTERS[characters[0]]
    norm = _norm(fields)
    return (DraftHead(block=block(letter, norm, *operations), norm=norm, count=count),)
