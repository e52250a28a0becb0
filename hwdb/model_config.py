"""A Model from the content of a Hugging Face `config.json`, read directly: no AutoConfig, no remote code."""

from collections.abc import Mapping
from typing import Any, Literal

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.gpt_config import gpt2_shape, gpt_neox_shape
from helmsman.hwdb.rope_config import rope
from helmsman.hwdb.uncovered_structures import covered_family
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Family, LearnedPositions, Model, Rope

Activation = Literal["silu", "relu", "gelu", "gelu_tanh"]

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_DTYPES: dict[str, Format] = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}
_MAX_LAYERS = 1024
_MAX_HEADS = 4096
_MAX_CONTEXT = 2**28

# Documented defaults of the families' config classes (transformers 5.23), for keys that may be absent.
_NORM_EPS: dict[Family, float] = {
    "llama": 1e-6, "mistral": 1e-6, "qwen2": 1e-6, "qwen3": 1e-6, "phi3": 1e-5,
}  # fmt: skip
_EOS: dict[Family, tuple[int, ...]] = {"llama": (2,), "mistral": (2,), "opt": (2,), "phi3": (32000,)}
_QWEN3_HEAD_DIM = 128
_QWEN_WINDOW_LAYERS = 28
_DEFAULT_WINDOW = 4096


def model_from_config(config: Mapping[str, Any], name: str, file: str) -> Model:
    """Return the model that `config` describes; `file` names the config in errors.

    Raises BadInputError for a dimension that is missing or out of range, and for what is not covered."""
    fields = Fields(config, file)
    family = covered_family(fields)
    if family in ("gpt2", "gpt_neox"):
        return _gpt(fields, family, name)
    return _opt(fields, name) if family == "opt" else _llama_like(fields, family, name)


def _gpt(fields: Fields, family: Family, name: str) -> Model:
    shape, key = (gpt2_shape, "activation_function") if family == "gpt2" else (gpt_neox_shape, "hidden_act")
    return Model(
        name=name,
        family=family,
        vocab=fields.integer("vocab_size"),
        activation=_activation(fields, key, "gelu_new" if family == "gpt2" else "gelu"),
        native_format=_native_format(fields),
        source=_source(fields),
        **shape(fields),
    )


def _opt(fields: Fields, name: str) -> Model:
    hidden = fields.integer("hidden_size")
    heads = fields.integer("num_attention_heads", high=_MAX_HEADS)
    bias = fields.flag("enable_bias", True)
    return Model(
        name=name,
        family="opt",
        layers=fields.integer("num_hidden_layers", high=_MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=_head_dim_from_hidden(fields, hidden, heads),
        ffn=fields.integer("ffn_dim"),
        vocab=fields.integer("vocab_size"),
        max_context=fields.integer("max_position_embeddings", high=_MAX_CONTEXT),
        activation=_activation(fields, "activation_function", "relu"),
        gated=False,
        norm="layer",
        norm_eps=1e-5,  # torch.nn.LayerNorm's default: OPT's config has no key for it
        position=LearnedPositions(offset=2),
        qkv_bias=bias,
        out_bias=bias,
        ffn_bias=bias,
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        native_format=_native_format(fields),
        eos=fields.integers("eos_token_id") or _EOS["opt"],
        source=_source(fields),
    )


def _llama_like(fields: Fields, family: Family, name: str) -> Model:
    heads = fields.integer("num_attention_heads", high=_MAX_HEADS)
    layers = fields.integer("num_hidden_layers", high=_MAX_LAYERS)
    attention_bias = family in ("llama", "qwen3") and fields.flag("attention_bias", False)
    head_dim, max_context, position = _positions(fields, family, heads)
    return Model(
        name=name,
        family=family,
        layers=layers,
        hidden=fields.integer("hidden_size"),
        heads=heads,
        kv_heads=_kv_heads(fields, family, heads),
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size"),
        vocab=fields.integer("vocab_size"),
        max_context=max_context,
        activation=_activation(fields, "hidden_act", "silu"),
        gated=True,
        norm="rms",
        norm_eps=fields.real("rms_norm_eps", _NORM_EPS[family], high=1.0),
        position=position,
        qkv_bias=attention_bias or family == "qwen2",
        out_bias=attention_bias,
        ffn_bias=family == "llama" and fields.flag("mlp_bias", False),
        qk_norm=family == "qwen3",
        tied_embeddings=fields.flag("tie_word_embeddings", False),
        sliding_window=_window(fields, family, layers),
        native_format=_native_format(fields),
        eos=fields.integers("eos_token_id") or _EOS.get(family, ()),
        source=_source(fields),
    )


def _positions(fields: Fields, family: Family, heads: int) -> tuple[int, int, Rope]:
    """(head_dim, longest context, rotary embedding)."""
    head_dim = _head_dim(fields, family, heads)
    max_context = fields.integer("max_position_embeddings", high=_MAX_CONTEXT)
    return head_dim, max_context, rope(fields, family, head_dim, max_context)


def _head_dim(fields: Fields, family: Family, heads: int) -> int:
    if fields.has("head_dim"):
        return fields.integer("head_dim", high=_MAX_HEADS)
    if family == "qwen3":
        return _QWEN3_HEAD_DIM
    return _head_dim_from_hidden(fields, fields.integer("hidden_size"), heads)


def _head_dim_from_hidden(fields: Fields, hidden: int, heads: int) -> int:
    if hidden % heads or hidden // heads > _MAX_HEADS:
        raise fields.wrong(
            "num_attention_heads",
            f"must divide hidden_size ({hidden}) into heads of at most {_MAX_HEADS}",
            "correct one of the two",
        )
    return hidden // heads


def _kv_heads(fields: Fields, family: Family, heads: int) -> int:
    # An absent key means 8 in Mistral's class and 32 in Qwen's, whatever the heads: ask rather than guess.
    optional = family in ("llama", "phi3") or "num_key_value_heads" in fields.content
    kv_heads = fields.integer("num_key_value_heads", heads if optional else None, high=_MAX_HEADS)
    if heads % kv_heads:
        raise fields.wrong("num_key_value_heads", f"must divide num_attention_heads ({heads})", "correct it")
    return kv_heads


def _window(fields: Fields, family: Family, layers: int) -> int | None:
    """Return the sliding window in tokens, None where the config disables it."""
    kinds = fields.texts("layer_types")
    unknown = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if unknown:
        raise fields.wrong("layer_types", f"not covered: {unknown[0]} layers", "choose another model")
    if family in ("qwen2", "qwen3"):
        slides = _qwen_slides(fields, kinds, layers)
        return fields.integer("sliding_window", _DEFAULT_WINDOW, high=_MAX_CONTEXT) if slides else None
    if family == "mistral" and "sliding_window" not in fields.content:
        return _DEFAULT_WINDOW
    if family == "llama" or not fields.has("sliding_window"):
        return None
    return fields.integer("sliding_window", high=_MAX_CONTEXT)


def _qwen_slides(fields: Fields, kinds: tuple[str, ...], layers: int) -> bool:
    """Qwen's window needs its switch, and covers only the layers from max_window_layers on."""
    if not fields.flag("use_sliding_window", False):
        return False
    if kinds:
        return "sliding_attention" in kinds
    return fields.integer("max_window_layers", _QWEN_WINDOW_LAYERS, low=0) < layers


def _activation(fields: Fields, key: str, default: str) -> Activation:
    activation = _ACTIVATIONS.get(fields.text(key, default))
    if activation is None:
        raise fields.wrong(key, "activation not covered", f"covered: {', '.join(_ACTIVATIONS)}")
    return activation


def _native_format(fields: Fields) -> Format:
    key = "dtype" if fields.has("dtype") else "torch_dtype"
    # PyTorch builds float32 where nothing is said.
    result = _DTYPES.get(fields.text(key, "float32").removeprefix("torch."))
    if result is None:
        raise fields.wrong(key, "format not covered", f"covered: {', '.join(_DTYPES)}")
    return result


def _source(fields: Fields) -> str:
    content = fields.content.get("_source")
    text = content if isinstance(content, str) and content else fields.file
    printable = "".join(letter for letter in text if letter.isprintable())
    return printable[:200] or "unknown"
