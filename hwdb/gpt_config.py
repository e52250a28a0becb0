"""A Model from the `config.json` of GPT-2 or GPT-NeoX: layer norms, biased projections, a plain FFN.

Their projections are fused and GPT-NeoX computes attention and FFN side by side; operations, bytes and FLOPs are those
of any decoder. What executes them is the captured graph of their own module."""

from typing import Any

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.rope_config import rope
from helmsman.schemas.model import LearnedPositions

_MAX_LAYERS = 1024
_MAX_HEADS = 4096
_MAX_CONTEXT = 2**28
_NORM_EPS = 1e-5
_GPT2_EOS = (50256,)
_NEOX_EOS = (2,)
_PLAIN: dict[str, Any] = {"gated": False, "norm": "layer", "ffn_bias": True}


def gpt2_shape(fields: Fields) -> dict[str, Any]:
    """Return the dimensions of a GPT-2, as fields of a Model. Raises BadInputError."""
    hidden, heads = fields.integer("n_embd"), fields.integer("n_head", high=_MAX_HEADS)
    return {
        **_PLAIN,
        "layers": fields.integer("n_layer", high=_MAX_LAYERS),
        "hidden": hidden,
        **_heads(fields, "n_head", hidden, heads),
        "ffn": fields.integer("n_inner", 4 * hidden),
        "max_context": fields.integer("n_positions", high=_MAX_CONTEXT),
        "norm_eps": fields.real("layer_norm_epsilon", _NORM_EPS, high=1.0),
        "position": LearnedPositions(offset=0),
        "qkv_bias": True,
        "out_bias": True,
        "tied_embeddings": fields.flag("tie_word_embeddings", True),
        "eos": fields.integers("eos_token_id") or _GPT2_EOS,
    }


def gpt_neox_shape(fields: Fields) -> dict[str, Any]:
    """Return the dimensions of a GPT-NeoX (Pythia), as fields of a Model. Raises BadInputError."""
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads", high=_MAX_HEADS)
    shape = _heads(fields, "num_attention_heads", hidden, heads)
    max_context = fields.integer("max_position_embeddings", high=_MAX_CONTEXT)
    bias = fields.flag("attention_bias", True)
    return {
        **_PLAIN,
        "layers": fields.integer("num_hidden_layers", high=_MAX_LAYERS),
        "hidden": hidden,
        **shape,
        "ffn": fields.integer("intermediate_size"),
        "max_context": max_context,
        "norm_eps": fields.real("layer_norm_eps", _NORM_EPS, high=1.0),
        "position": rope(fields, "gpt_neox", shape["head_dim"], max_context),
        "qkv_bias": bias,
        "out_bias": bias,
        "tied_embeddings": fields.flag("tie_word_embeddings", False),
        "eos": fields.integers("eos_token_id") or _NEOX_EOS,
    }


def _heads(fields: Fields, key: str, hidden: int, heads: int) -> dict[str, int]:
    if hidden % heads or hidden // heads > _MAX_HEADS:
        raise fields.wrong(
            key, f"must divide the hidden size ({hidden}) into heads of at most {_MAX_HEADS}", "correct one of the two"
        )
    return {"heads": heads, "kv_heads": heads, "head_dim": hidden // heads}
