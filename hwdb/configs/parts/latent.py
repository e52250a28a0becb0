"""Reads latent attention (MLA): ranks, parts of a head, and the scale that YaRN lets grow."""

from typing import Literal

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_HEADS, context
from helmsman.hwdb.configs.parts.rope import RopeRules, rope, scaling_fields
from helmsman.hwdb.configs.parts.rope_scalings import yarn_growth
from helmsman.schemas.blocks.attention import LatentAttention, TokenIndexer
from helmsman.schemas.blocks.norms import Norm

_NORM_EPS = 1e-6
"""The default of the classes' norms, which those of latent vectors and queries keep whatever rms_norm_eps says."""


def latent_attention(
    config: Config, *, rotates: bool = True, states_pairs: bool = False, indexer: TokenIndexer | None = None
) -> LatentAttention:
    """Return latent attention; `rotates`: whether a part of each head has rotary positions; `states_pairs`: whether the
    class reads rope_interleave. Raises BadInputError."""
    fields = config.fields
    heads = fields.integer("num_attention_heads", high=MAX_HEADS)
    if fields.integer("num_key_value_heads", heads, high=MAX_HEADS) != heads:
        raise fields.wrong("num_key_value_heads", f"must be num_attention_heads ({heads})", "correct one of the two")
    nope, turned = (
        fields.integer("qk_nope_head_dim", high=MAX_HEADS),
        fields.integer("qk_rope_head_dim", high=MAX_HEADS),
    )
    _check_sum(fields, nope + turned)
    return LatentAttention(
        heads=heads,
        nope_dim=nope,
        rope_dim=turned,
        value_dim=fields.integer("v_head_dim", high=MAX_HEADS),
        latent=fields.integer("kv_lora_rank"),
        query_rank=_query_rank(fields),
        scale=(nope + turned) ** -0.5 * (_growth(fields) ** 2 if rotates else 1.0),
        norm=Norm(eps=_NORM_EPS),
        rope=rope(fields, config.family, turned, context(fields), _rules(fields, states_pairs)) if rotates else None,
        indexer=indexer,
    )


def _query_rank(fields: Fields) -> int | None:
    """Return the rank of queries, None where they come straight from the hidden state: null, which must be said."""
    if "q_lora_rank" in fields.content and not fields.has("q_lora_rank"):
        return None
    return fields.integer("q_lora_rank")


def _check_sum(fields: Fields, compared: int) -> None:
    if fields.has("qk_head_dim") and fields.integer("qk_head_dim") != compared:
        raise fields.wrong("qk_head_dim", f"must be qk_nope_head_dim + qk_rope_head_dim ({compared})", "correct it")


def _rules(fields: Fields, states_pairs: bool) -> RopeRules:
    """Return the rotation of pairs that lie side by side, unless the config may say that they are halves apart."""
    apart = states_pairs and not fields.flag("rope_interleave", True)
    pairs: Literal["half", "interleaved"] = "half" if apart else "interleaved"
    return RopeRules(pairs=pairs, scalings=("yarn",), share=1.0, dim_key="qk_rope_head_dim")


def _growth(fields: Fields) -> float:
    """Return by what YaRN multiplies queries and keys each, which scores feel squared."""
    scaling = scaling_fields(fields)
    weight = scaling.optional_real("mscale_all_dim")
    kind = scaling.text("rope_type" if scaling.has("rope_type") else "type", "default")
    return yarn_growth(scaling.real("factor"), weight) if weight is not None and kind != "default" else 1.0
