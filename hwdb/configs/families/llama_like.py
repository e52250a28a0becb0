"""Reads Llama, Mistral, Phi-3, Qwen2 and Qwen3: rotary positions, RMS norms before attention and a gated network."""

from typing import Literal

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families.dense import check_dense, described_config
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import (
    MAX_CONTEXT,
    MAX_HEADS,
    activation,
    context,
    end_tokens,
    head_dim_from_hidden,
    hidden_size,
    kv_heads,
    layer_count,
    native_format,
    source,
    tied,
)
from helmsman.hwdb.configs.parts.layers import layer_kinds
from helmsman.hwdb.configs.parts.rope import DENSE_KINDS, RopeRules, rope
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.model import Model

LlamaLike = Literal["llama", "mistral", "phi3", "qwen2", "qwen3"]

# Documented defaults of the families' config classes (transformers 5.23), for keys that may be absent.
_NORM_EPS: dict[LlamaLike, float] = {"llama": 1e-6, "mistral": 1e-6, "qwen2": 1e-6, "qwen3": 1e-6, "phi3": 1e-5}
_EOS: dict[LlamaLike, tuple[int, ...]] = {"llama": (2,), "mistral": (2,), "phi3": (32000,)}
_QWEN3_HEAD_DIM = 128
_QWEN_WINDOW_LAYERS = 28
_DEFAULT_WINDOW = 4096
_PHI3_CONTEXT = 4096
_KINDS = ("full_attention", "sliding_attention")

_PLAIN = RopeRules(scalings=DENSE_KINDS)
_PARTIAL = RopeRules(share=1.0, scalings=DENSE_KINDS, original=_PHI3_CONTEXT)

LLAMA_KEYS = KnownKeys(without_effect=frozenset({"sliding_window"}))
MISTRAL_KEYS = KnownKeys()
PHI3_KEYS = KnownKeys(
    without_effect=frozenset({"original_max_position_embeddings"}),
    one_value={"full_attn_mod": (1,), "interpolate_factor": (1,)},
)
QWEN2_KEYS = KnownKeys(
    # Qwen2 has its biases on q, k and v whatever attention_bias says; its implementation never reads it.
    without_effect=frozenset({"attention_bias", "sliding_window", "max_window_layers", "use_mrope"}),
)
QWEN3_KEYS = KnownKeys(without_effect=frozenset({"sliding_window", "max_window_layers"}))


def llama(config: Config) -> Model:
    """Return a Llama."""
    return _llama_like(config, "llama")


def mistral(config: Config) -> Model:
    """Return a Mistral."""
    return _llama_like(config, "mistral")


def phi3(config: Config) -> Model:
    """Return a Phi-3, Phi-3.5, Phi-4 or Phi-4-mini."""
    return _llama_like(config, "phi3")


def qwen2(config: Config) -> Model:
    """Return a Qwen2 or Qwen2.5."""
    return _llama_like(config, "qwen2")


def qwen3(config: Config) -> Model:
    """Return a dense Qwen3."""
    return _llama_like(config, "qwen3")


def _llama_like(config: Config, family: LlamaLike) -> Model:
    fields = config.fields
    check_dense(fields, family)
    heads, layers = fields.integer("num_attention_heads", high=MAX_HEADS), layer_count(fields)
    attention_bias = family in ("llama", "qwen3") and fields.flag("attention_bias", False)
    head_dim, max_context = _head_dim(fields, family, heads), context(fields)
    windows = _windows(fields, family, layers)
    dense = DenseModel(
        name=config.name,
        family=family,
        layers=layers,
        hidden=hidden_size(fields),
        heads=heads,
        # An absent key means 8 in Mistral's class and 32 in Qwen's, whatever the heads: ask rather than guess.
        kv_heads=kv_heads(fields, heads, optional=family in ("llama", "phi3")),
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size"),
        vocab=fields.integer("vocab_size"),
        max_context=max_context,
        activation=activation(fields, "hidden_act", "silu"),
        gated=True,
        norm="rms",
        norm_eps=fields.real("rms_norm_eps", _NORM_EPS[family], high=1.0),
        position=rope(fields, family, head_dim, max_context, _PARTIAL if family == "phi3" else _PLAIN),
        qkv_bias=attention_bias or family == "qwen2",
        out_bias=attention_bias,
        ffn_bias=family == "llama" and fields.flag("mlp_bias", False),
        qk_norm=family == "qwen3",
        tied_embeddings=tied(config, False),
        sliding_window=windows[0] if len(set(windows)) == 1 else None,
        native_format=native_format(config),
        eos=end_tokens(config, _EOS.get(family, ())),
        source=source(config),
    )
    model = described_config(config, dense)
    return model if len(set(windows)) == 1 else _with_windows(model, windows)


def _head_dim(fields: Fields, family: LlamaLike, heads: int) -> int:
    if fields.has("head_dim"):
        return fields.integer("head_dim", high=MAX_HEADS)
    if family == "qwen3":
        return _QWEN3_HEAD_DIM
    return head_dim_from_hidden(fields, hidden_size(fields), heads)


def _windows(fields: Fields, family: LlamaLike, layers: int) -> tuple[int | None, ...]:
    """Return the sliding window of every layer in tokens, None where the config disables it."""
    kinds = layer_kinds(fields, "layer_types", layers, _KINDS, ())
    if family in ("qwen2", "qwen3"):
        return _qwen_windows(fields, kinds, layers)
    window = None
    if family == "mistral" and "sliding_window" not in fields.content:
        window = _DEFAULT_WINDOW
    elif family != "llama" and fields.has("sliding_window"):
        window = fields.integer("sliding_window", high=MAX_CONTEXT)
    return tuple(window if not kinds or kinds[layer] == _KINDS[1] else None for layer in range(layers))


def _qwen_windows(fields: Fields, kinds: tuple[str, ...], layers: int) -> tuple[int | None, ...]:
    """Qwen's window needs its switch, and covers only the layers from max_window_layers on."""
    slides = fields.flag("use_sliding_window", False)
    if slides and not kinds:
        first = fields.integer("max_window_layers", _QWEN_WINDOW_LAYERS, low=0)
        kinds = tuple(_KINDS[layer >= first] for layer in range(layers))
    if not slides or _KINDS[1] not in kinds:
        return (None,) * layers
    window = fields.integer("sliding_window", _DEFAULT_WINDOW, high=MAX_CONTEXT)
    return tuple(window if kind == _KINDS[1] else None for kind in kinds)


def _with_windows(model: Model, windows: tuple[int | None, ...]) -> Model:
    """Return the model with two layouts: A for full attention, W for layers that have a window."""
    window = next(length for length in windows if length is not None)
    full, others = model.layouts[0], model.layouts[0].residuals[1:]
    mixer = full.residuals[0].bodies[0].op
    assert isinstance(mixer, Attention)
    slid = Attention(**{**dict(mixer), "window": window})
    first = Residual(bodies=(Body(op=slid),), pre=full.residuals[0].pre)
    layouts = (full, Block(letter="W", residuals=(first, *others)))
    pattern = "".join("A" if length is None else "W" for length in windows)
    if pattern[0] == "W":
        layouts = (layouts[1], layouts[0])
    return model.model_copy(update={"layouts": layouts, "pattern": pattern})
