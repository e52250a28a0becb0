"""Defaults of keys that may be absent, and parameters, against the config classes and models of transformers."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from small_configs import SMALL_CONFIGS, read_small, small_config

from helmsman.hwdb.model_config import model_from_config
from helmsman.lowering.tensors import parameters
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

UNLIKE = {
    # Their classes count draft heads that they do not build, and a fixed number of heads that nothing reads.
    ("deepseek_v3", "num_nextn_predict_layers"),
    ("deepseek_v4", "num_nextn_predict_layers"),
    ("glm4_moe", "num_nextn_predict_layers"),
    ("deepseek_v3", "num_key_value_heads"),
    ("deepseek_v32", "num_key_value_heads"),
    ("glm_moe_dsa", "num_key_value_heads"),
    ("glm4_moe_lite", "num_key_value_heads"),
    ("kimi_linear", "num_key_value_heads"),
}
"""Configs, and keys of them, whose absence is read unlike the class's default."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep transformers' warnings about unusual values out of the test's output."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(level)


def as_transformers_writes(content: dict[str, Any]) -> dict[str, Any]:
    config = transformers.AutoConfig.for_model(**deepcopy(content))
    written: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return written


@pytest.mark.parametrize("name", sorted(SMALL_CONFIGS))
def test_what_transformers_writes_is_the_same_model_and_so_is_each_default(name: str) -> None:
    assert model_from_config(as_transformers_writes(small_config(name)), name, "config.json") == read_small(name)
    for key in SMALL_CONFIGS[name]:
        if (name, key) in UNLIKE or key == "model_type":
            continue
        without = small_config(name, **{key: ...})
        try:
            model = model_from_config(without, name, "config.json")
        except BadInputError:
            continue  # asking is always right
        if model.unknown:
            continue  # and so is planning alone, without a value
        assert model_from_config(as_transformers_writes(without), name, "config.json") == model, key


@pytest.mark.parametrize("name", sorted(SMALL_CONFIGS))
def test_small_models_have_the_parameters_of_transformers(name: str) -> None:
    assert parameters(read_small(name)) == oracle_parameters(small_config(name))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("granitemoehybrid", {"num_local_experts": 0, "num_experts_per_tok": 0}),
        ("glm4_moe", {"use_qk_norm": False, "first_k_dense_replace": 0}),
        ("llama4_text", {"interleave_moe_layer_step": 1}),
        ("nemotron_h", {"moe_latent_size": ..., "use_conv_bias": False}),
        ("falcon_h1", {"mamba_rms_norm": True, "mlp_bias": True, "attention_bias": True}),
        ("opt-350m", {"do_layer_norm_before": True}),
        ("opt-350m", {"word_embed_proj_dim": 32, "enable_bias": False}),
        ("deepseek_v2", {"q_lora_rank": 24, "n_shared_experts": 1}),
        ("lfm2", {"block_ffn_dim_multiplier": 1.5, "conv_bias": True}),
        ("gemma4_text-e", {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 1, "attention_k_eq_v": True}),
        ("qwen3_moe", {"attention_bias": True, "mlp_only_layers": []}),
    ],
)
def test_variants_have_the_parameters_of_transformers(name: str, changes: dict[str, Any]) -> None:
    assert parameters(read_small(name, **changes)) == oracle_parameters(small_config(name, **changes))


def oracle_parameters(content: dict[str, Any]) -> int:
    """Return the parameters of the model that transformers builds without storage."""
    build: Callable[..., Any] = transformers.AutoModelForCausalLM.from_config
    with torch.device("meta"):
        model = build(transformers.AutoConfig.for_model(**deepcopy(content)))
    return sum(parameter.numel() for parameter in model.parameters())


def test_a_default_that_is_read_wrongly_would_be_noticed() -> None:
    model: Model = read_small("gemma2", query_pre_attn_scalar=...)
    assert model != read_small("gemma2")
