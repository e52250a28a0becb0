"""Reads Llama 4: chunks with rotary positions in three layers of four, none of either in the fourth; experts whose
input is scaled, beside a shared one."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_CONTEXT, MAX_LAYERS, context, grouped_heads, layer_count
from helmsman.hwdb.configs.parts.layers import layer_kinds
from helmsman.hwdb.configs.parts.networks import expert_counts, gated_experts, gated_network
from helmsman.hwdb.configs.parts.rope import RopeRules, rope
from helmsman.schemas.blocks.attention import Attention, QueryTemperature
from helmsman.schemas.blocks.feed_forward import Router
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.model import Model

_ROPE = RopeRules(theta=500000.0, pairs="interleaved", scalings=("llama3",), equal_bounds=True)
_HEAD_DIM = 128
_KINDS = ("chunked_attention", "full_attention")
_ROUTER = Router(score="sigmoid", normalised=False)

LLAMA4_KEYS = KnownKeys(without_effect=frozenset({"for_llm_compressor"}))


def llama4(config: Config) -> Model:
    """Return the text model of a Llama 4."""
    fields = config.fields
    layers = layer_count(fields)
    norm = Norm(eps=fields.real("rms_norm_eps", 1e-5, high=1.0))
    counts = expert_counts(fields, "num_local_experts", "num_experts_per_tok")
    shared = gated_network(fields)
    experts = gated_experts(fields, counts, "intermediate_size", _ROUTER, shared=shared, input_scaled=True)
    network = gated_network(fields, "intermediate_size_mlp")
    routed, attentions = _routed(fields, layers), {turns: _attention(config, turns) for turns in (True, False)}
    blocks = []
    for layer, turns in enumerate(_turning(fields, layers)):
        attention = attentions[turns]
        letter = "N" if not turns else "A" if attention.chunk is None else "K"
        has_experts = layer in routed
        body = experts if has_experts else network
        blocks.append(block(letter.lower() if has_experts else letter, norm, attention, body))
    return assembled(config, blocks, norm, eos=(2,))


def _turning(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Return which layers have rotary positions: those with 1 in no_rope_layers, all but every fourth by default.

    Raises BadInputError where layer_types has chunks in other layers than these."""
    interval = fields.integer("no_rope_layer_interval", 4, high=MAX_LAYERS)
    numbers = fields.numbers("no_rope_layers", 1, count=layers)
    turns = tuple(bool(number) for number in numbers) or tuple((layer + 1) % interval != 0 for layer in range(layers))
    chunks = fields.has("attention_chunk_size") or "attention_chunk_size" not in fields.content
    kinds = tuple(_KINDS[not (has and chunks)] for has in turns)
    if layer_kinds(fields, "layer_types", layers, _KINDS, kinds) != kinds:
        raise fields.wrong("layer_types", "chunks in other layers than those with rotary positions", "correct the list")
    return turns


def _routed(fields: Fields, layers: int) -> frozenset[int]:
    """Return the layers that have experts: as listed, or every so many."""
    step = fields.integer("interleave_moe_layer_step", 1, high=MAX_LAYERS)
    counted = frozenset(range(step - 1, layers, step))
    return frozenset(fields.numbers("moe_layers", layers - 1)) if fields.has("moe_layers") else counted


def _attention(config: Config, turns: bool) -> Attention:
    fields = config.fields
    heads, bias = grouped_heads(fields, _HEAD_DIM), fields.flag("attention_bias", False)
    unweighted = Norm(eps=fields.real("rms_norm_eps", 1e-5, high=1.0), weight=False)
    normed = fields.flag("use_qk_norm", True) and turns
    return Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=QueryKeyNorm(norm=unweighted, place="after-rotation") if normed else None,
        rope=rope(fields, config.family, heads.dim, context(fields), _ROPE) if turns else None,
        chunk=_chunk(fields) if turns else None,
        query_temperature=None if turns else _temperature(fields),
    )


def _chunk(fields: Fields) -> int | None:
    if "attention_chunk_size" in fields.content and not fields.has("attention_chunk_size"):
        return None
    return fields.integer("attention_chunk_size", 8192, high=MAX_CONTEXT)


def _temperature(fields: Fields) -> QueryTemperature | None:
    """Return by what queries grow in layers without positions. Released files write the switch as a number."""
    floor, scale = fields.integer("floor_scale", 8192, high=MAX_CONTEXT), fields.real("attn_scale", 0.1)
    key = "attn_temperature_tuning"
    number = type(fields.content.get(key)) is int
    on = fields.integer(key, low=0, high=4) > 0 if number else fields.flag(key, True)
    return QueryTemperature(floor=floor, scale=scale) if on else None
