"""Reads GPT-2 and GPT-NeoX: layer norms, biased projections, a plain network.

Their projections are fused and GPT-NeoX computes attention and network side by side; operations, bytes and FLOPs are
those of any decoder. What executes them is the captured graph of their own module."""

from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families.dense import check_dense, described_config
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import (
    MAX_CONTEXT,
    MAX_HEADS,
    MAX_LAYERS,
    activation,
    context,
    end_tokens,
    head_dim_from_hidden,
    hidden_size,
    layer_count,
    native_format,
    source,
    tied,
)
from helmsman.hwdb.configs.parts.rope import DENSE_KINDS, RopeRules, rope
from helmsman.schemas.blocks.positions import LearnedPositions
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.model import Model

_NORM_EPS = 1e-5
_GPT2_EOS = (50256,)
_NEOX_EOS = (2,)
_NEOX_ROPE = RopeRules(share=0.25, share_key="rotary_pct", scalings=DENSE_KINDS)
"""GPTNeoXConfig's documented default of rotary_pct."""

GPT2_KEYS = KnownKeys(
    without_effect=frozenset(
        [
            "n_ctx",
            "reorder_and_upcast_attn",
            "summary_activation",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        ]
    ),
    one_value={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,)},
)
NEOX_KEYS = KnownKeys(one_value={"use_parallel_residual": (True,)})


def gpt2(config: Config) -> Model:
    """Return a GPT-2. Raises BadInputError."""
    fields = config.fields
    check_dense(fields, "gpt2")
    hidden, heads = fields.integer("n_embd"), fields.integer("n_head", high=MAX_HEADS)
    dense = DenseModel(
        name=config.name,
        family="gpt2",
        vocab=fields.integer("vocab_size"),
        activation=activation(fields, "activation_function", "gelu_new"),
        gated=False,
        norm="layer",
        layers=fields.integer("n_layer", high=MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim_from_hidden(fields, hidden, heads, "n_head"),
        ffn=fields.integer("n_inner", 4 * hidden),
        max_context=fields.integer("n_positions", high=MAX_CONTEXT),
        norm_eps=fields.real("layer_norm_epsilon", _NORM_EPS, high=1.0),
        position=LearnedPositions(offset=0),
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        tied_embeddings=tied(config, True),
        native_format=native_format(config),
        eos=end_tokens(config, _GPT2_EOS),
        source=source(config),
    )
    return described_config(config, dense)


def gpt_neox(config: Config) -> Model:
    """Return a GPT-NeoX (Pythia). Raises BadInputError."""
    fields = config.fields
    check_dense(fields, "gpt_neox")
    hidden, heads = hidden_size(fields), fields.integer("num_attention_heads", high=MAX_HEADS)
    head_dim, max_context = head_dim_from_hidden(fields, hidden, heads), context(fields)
    bias = fields.flag("attention_bias", True)
    dense = DenseModel(
        name=config.name,
        family="gpt_neox",
        vocab=fields.integer("vocab_size"),
        activation=activation(fields, "hidden_act", "gelu"),
        gated=False,
        norm="layer",
        layers=layer_count(fields),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size"),
        max_context=max_context,
        norm_eps=fields.real("layer_norm_eps", _NORM_EPS, high=1.0),
        position=rope(fields, "gpt_neox", head_dim, max_context, _NEOX_ROPE),
        qkv_bias=bias,
        out_bias=bias,
        ffn_bias=True,
        tied_embeddings=tied(config, False),
        native_format=native_format(config),
        eos=end_tokens(config, _NEOX_EOS),
        source=source(config),
    )
    return described_config(config, dense)
