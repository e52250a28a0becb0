"""`config.json` of dense families to Model: defaults, both generations of keys, refusals by name, bad values."""

from typing import Any

import pytest
from together import together

import helmsman.hwdb.load_model as loader
from helmsman.hwdb.model_config import model_from_config
from helmsman.schemas.blocks.positions import LinearScaling, Llama3Scaling, LongRope, Rope
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
GQA = {**LLAMA, "num_key_value_heads": 2}
OPT: dict[str, Any] = {
    "model_type": "opt",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "ffn_dim": 96,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}


def read(config: dict[str, Any], **changes: Any) -> Model:
    content = {key: value for key, value in {**config, **changes}.items() if value is not ...}
    return model_from_config(content, "small", "config.json")


def rope_of(model: Model) -> Rope:
    assert isinstance(model.dense.position, Rope)
    return model.dense.position


def test_llama_defaults_are_those_of_its_config_class() -> None:
    model = read(LLAMA)
    assert (model.dense.kv_heads, model.dense.head_dim, model.dense.norm_eps) == (4, 16, 1e-6)
    assert (rope_of(model).theta, rope_of(model).rotary_dim, rope_of(model).scaling) == (1e4, 16, None)
    assert (model.head.tied, model.eos, model.native_format) == (False, (2,), "f32")
    assert (model.dense.activation, model.dense.gated, model.dense.norm) == ("silu", True, "rms")
    assert not (model.dense.qkv_bias or model.dense.out_bias or model.dense.ffn_bias or model.dense.qk_norm)


def test_null_counts_as_absent() -> None:
    nulls = dict.fromkeys(("num_key_value_heads", "head_dim", "rope_scaling", "sliding_window", "dtype"))
    assert read({**LLAMA, **nulls}) == read(LLAMA)


def test_opt_defaults_are_those_of_its_config_class() -> None:
    model = read(OPT)
    dense = model.dense
    assert (dense.kv_heads, dense.head_dim, dense.norm, dense.norm_eps) == (4, 16, "layer", 1e-5)
    assert (model.dense.activation, model.dense.gated, model.head.tied) == ("relu", False, True)
    assert model.dense.qkv_bias and model.dense.out_bias and model.dense.ffn_bias
    assert model.dense.position.kind == "learned" and model.dense.position.offset == 2
    assert not read(OPT, enable_bias=False).dense.qkv_bias


def test_families_differ_where_transformers_does() -> None:
    assert read(LLAMA, model_type="phi3").dense.norm_eps == 1e-5
    qwen2, qwen3 = read(GQA, model_type="qwen2").dense, read(GQA, model_type="qwen3").dense
    assert (qwen2.qkv_bias, qwen2.out_bias, qwen2.qk_norm, qwen2.head_dim) == (True, False, False, 16)
    assert (qwen3.qkv_bias, qwen3.qk_norm, qwen3.head_dim, qwen3.eos) == (False, True, 128, ())
    biased = read(GQA, model_type="qwen3", attention_bias=True).dense
    assert (biased.qkv_bias, biased.out_bias, biased.ffn_bias) == (True, True, False)
    assert read(LLAMA, mlp_bias=True).dense.ffn_bias


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3"])
def test_kv_heads_whose_default_is_a_fixed_number_must_be_said(family: str) -> None:
    with pytest.raises(BadInputError, match="num_key_value_heads: missing; add"):
        read(LLAMA, model_type=family)
    assert read(LLAMA, model_type=family, num_key_value_heads=None).dense.kv_heads == 4


@together(
    ("family", "keys", "window"),
    [
        ("mistral", {}, 4096),
        ("mistral", {"sliding_window": None}, None),
        ("mistral", {"sliding_window": 64}, 64),
        ("phi3", {}, None),
        ("phi3", {"sliding_window": 2047}, 2047),
        ("llama", {"sliding_window": 64}, None),
        ("qwen2", {"sliding_window": 64}, None),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": False, "max_window_layers": 0}, None),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 2}, None),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 0}, 64),
        ("qwen3", {"use_sliding_window": True, "max_window_layers": 0}, 4096),
        (
            "qwen3",
            {"sliding_window": 64, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 2},
            64,
        ),
        (
            "qwen3",
            {"sliding_window": 64, "use_sliding_window": True, "layer_types": ["full_attention"] * 2},
            None,
        ),
    ],
)
def test_sliding_window_only_where_enabled(family: str, keys: dict[str, Any], window: int | None) -> None:
    assert read({**GQA, "model_type": family, **keys}).dense.sliding_window == window


@pytest.mark.parametrize(
    ("keys", "pattern"),
    [
        ({"max_window_layers": 1}, "AW"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "AW"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "WA"),
    ],
)
def test_a_window_in_some_layers_bounds_those_alone(keys: dict[str, Any], pattern: str) -> None:
    model = read({**GQA, "model_type": "qwen3", "sliding_window": 64, "use_sliding_window": True, **keys})
    assert model.pattern == pattern
    windows = [attention.window for layer in range(2) if (attention := model.attention(layer)) is not None]
    assert windows == [64 if letter == "W" else None for letter in pattern]
    with pytest.raises(BadInputError, match="2 kinds of blocks"):
        _ = model.dense


def test_layer_types_name_every_layer() -> None:
    with pytest.raises(BadInputError, match="layer_types: 2 layers are expected, not 1"):
        read(GQA, model_type="qwen3", layer_types=["full_attention"])


def test_rope_keys_of_both_generations() -> None:
    llama3 = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    expected = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=64)
    old = read(LLAMA, rope_theta=5e5, rope_scaling={"rope_type": "llama3", **llama3})
    new = read(LLAMA, rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **llama3})
    both = read(LLAMA, rope_parameters={"rope_theta": 5e5}, rope_scaling={"rope_type": "llama3", **llama3})
    assert rope_of(old).scaling == expected
    assert old == new == both
    linear = read(LLAMA, rope_scaling={"type": "linear", "factor": 2})
    assert rope_of(linear).scaling == LinearScaling(factor=2.0)


def test_longrope_and_partial_rotation() -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    config = {**LLAMA, "model_type": "phi3", "partial_rotary_factor": 0.5, "rope_scaling": factors}
    expected = LongRope(short_factor=(1.0,) * 4, long_factor=(2.0,) * 4, original_context=32)
    for kind in ("longrope", "su"):
        scaling = {"type": kind, **factors}
        model = read(config, rope_scaling=scaling, original_max_position_embeddings=32)
        assert (rope_of(model).rotary_dim, rope_of(model).scaling) == (8, expected)
    with pytest.raises(BadInputError, match=r"rope_scaling\.short_factor: 4 numbers are expected, not 8"):
        read(config, rope_scaling={"type": "su", "short_factor": [1.0] * 8, "long_factor": [1.0] * 4})
    with pytest.raises(BadInputError, match=r"rope_scaling\.factor: must equal"):
        read(config, rope_scaling={"type": "su", "factor": 3.0, **factors})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float16", "torch_dtype": "bfloat16"}, "f16"),
        ({"torch_dtype": "torch.float32"}, "f32"),
    ],
)
def test_native_format(changes: dict[str, Any], expected: str) -> None:
    assert read(LLAMA, **changes).native_format == expected


def test_eos_is_one_or_many() -> None:
    assert read(LLAMA, eos_token_id=7).eos == (7,)
    assert read(LLAMA, eos_token_id=[7, 8]).eos == (7, 8)


@together(
    ("changes", "named"),
    [
        ({"num_local_experts": 8}, r"mixture of experts \(num_local_experts=8\)"),
        ({"num_experts": 128}, r"mixture of experts \(num_experts=128\)"),
        ({"n_routed_experts": 64}, r"mixture of experts \(n_routed_experts=64\)"),
        ({"kv_lora_rank": 512}, r"multi-head latent attention \(kv_lora_rank=512\)"),
        ({"quantization_config": {"quant_method": "eetq"}}, r"quantization_config\.quant_method: not covered"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"lm_head_bias": True}, "not covered: lm_head_bias in the family llama"),
        ({"model_type": "gemma"}, "Gemma 1's norms"),
        ({"model_type": "mamba"}, "model type 'mamba'"),
        ({"model_type": "phi3", "attention_bias": True}, "attention_bias in the family phi3"),
        ({"model_type": "mistral", "mlp_bias": True}, "mlp_bias in the family mistral"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "rope scaling 'dynamic'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "rope parameters per layer type"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: not covered in the family llama"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "linear_attention layers"),
        ({"hidden_act": "relu2"}, "activation not covered"),
        ({"torch_dtype": "float8_e4m3fn"}, "format not covered"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInputError, match=named) as caught:
        read(GQA, **changes)
    assert caught.value.exit_code == 5
    assert caught.value.field and caught.value.remedy and caught.value.file == "config.json"


DIMENSIONS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)


@together("key", DIMENSIONS)
@together("bad", [..., -1, 0, 2**40, 10**400, True, float("nan"), float("inf"), 64.0, "64", [64], {"a": 1}])
def test_bad_dimensions_name_file_field_and_remedy(key: str, bad: Any) -> None:
    with pytest.raises(BadInputError) as caught:
        read({**GQA, "model_type": "mistral"}, **{key: bad})
    error = caught.value
    assert (error.file, error.field) == ("config.json", key)
    assert error.remedy and "\n" not in str(error) and len(str(error)) < 400
    if bad is not ...:
        assert error.value is bad


@together(
    ("changes", "field"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"hidden_size": 66}, "num_attention_heads"),
        ({"hidden_size": 4}, "hidden_size"),
        ({"head_dim": 15}, "head_dim"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rms_norm_eps": 2.0}, "rms_norm_eps"),
        ({"rope_theta": -1.0}, "rope_theta"),
        ({"rope_theta": "big"}, "rope_theta"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor"),
        ({"rope_scaling": {"type": "linear", "factor": True}}, "rope_scaling.factor"),
        ({"rope_scaling": {"type": 3}}, "rope_scaling.type"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"eos_token_id": -1}, "eos_token_id"),
        ({"eos_token_id": True}, "eos_token_id"),
        ({"eos_token_id": [1] * 65}, "eos_token_id"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"model_type": 7}, "model_type"),
        ({"model_type": ...}, "model_type"),
        ({"torch_dtype": 16}, "torch_dtype"),
    ],
)
def test_bad_values_name_their_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read(GQA, **changes)
    assert caught.value.field == field
    assert caught.value.remedy


def test_source_says_where_the_dimensions_come_from() -> None:
    assert read(LLAMA).source == "config.json"
    assert "litgpt" in loader.load_model("phi-4").source
