"""Each key of a config is used, known to be without effect, or refused by name; text models within files."""

from copy import deepcopy
from typing import Any

import pytest
from small_configs import SMALL_CONFIGS, WRAPPED, check_refused, read_small, small_config, wrapped
from together import together

from helmsman.hwdb.configs.registry import AROUND_TEXT, NOT_DESCRIBED, READERS
from helmsman.hwdb.model_config import model_from_config
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

DENSE = {"gpt2", "gpt_neox", "kimi_k2", "llama", "mistral", "phi3", "qwen2", "qwen3"}
"""Model types that other tests read."""


def read(content: dict[str, Any]) -> Model:
    return model_from_config(content, "model", "config.json")


def test_every_reader_has_a_small_config() -> None:
    assert {content["model_type"] for content in SMALL_CONFIGS.values()} | DENSE == set(READERS)
    assert set(WRAPPED) == set(AROUND_TEXT)


@together("name", sorted(SMALL_CONFIGS))
def test_a_key_that_nobody_knows_is_refused_by_name(name: str) -> None:
    check_refused(name, "kv_compression", "a key that is not known in the family", kv_compression=4)
    assert read_small(name, kv_compression=None) == read_small(name)


@together("name", sorted(SMALL_CONFIGS))
def test_training_generation_and_tokens_change_nothing(name: str) -> None:
    quiet = {
        "attention_dropout": 0.1,
        "initializer_range": 0.01,
        "use_cache": False,
        "output_router_logits": True,
        "router_aux_loss_coef": 0.5,
        "bos_token_id": 5,
        "temperature": 0.7,
        "transformers_version": "5.0.0",
        "id2label": {"0": "LABEL_0"},
        "_name_or_path": "somewhere",
        "_anything_of_ours": {"a": 1},
    }
    assert read_small(name, **quiet) == read_small(name)


@pytest.mark.parametrize(
    ("key", "value"),
    [("is_encoder_decoder", True), ("add_cross_attention", True), ("pruned_heads", {"0": [1]}), ("mlp_bias", True)],
)
def test_keys_that_have_an_effect_at_other_values_are_refused(key: str, value: object) -> None:
    check_refused("mixtral", key, f"not covered: {key} in the family mixtral", **{key: value})


def test_a_key_within_an_object_is_refused_by_its_place() -> None:
    scaling = {**small_config("deepseek_v3")["rope_scaling"], "attn_scale_factor": 2.0}
    check_refused("deepseek_v3", "rope_scaling.attn_scale_factor", "not known", rope_scaling=scaling)
    kimi = {**small_config("kimi_linear")["linear_attn_config"], "chunk": 64}
    check_refused("kimi_linear", "linear_attn_config.chunk", "not known", linear_attn_config=kimi)


@pytest.mark.parametrize("family", sorted(WRAPPED))
def test_a_text_model_within_a_file_is_the_same_model(family: str) -> None:
    model, alone = read(wrapped(family)), read(deepcopy(WRAPPED[family]))
    assert model.family == family
    assert model.model_copy(update={"family": alone.family}) == alone


def test_what_stands_at_either_level_is_read_at_both() -> None:
    content = wrapped("qwen3_5_moe")
    del content["tie_word_embeddings"]
    content["text_config"] = {**content["text_config"], "tie_word_embeddings": True}
    del content["text_config"]["torch_dtype"]
    content |= {"dtype": "float16", "eos_token_id": [3, 4]}
    model = read(content)
    assert (model.head.tied, model.native_format, model.eos) == (True, "f16", (3, 4))


def test_levels_that_contradict_each_other_are_refused() -> None:
    content = wrapped("qwen3_5_moe")
    content["text_config"] = {**content["text_config"], "tie_word_embeddings": True}
    with pytest.raises(BadInputError, match=r"text_config\.tie_word_embeddings: differs from"):
        read(content)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_config": None}, "text_config: missing: a qwen3_5_moe has its text model there"),
        ({"text_config": []}, "text_config: a JSON object is expected"),
        ({"num_hidden_layers": 4}, "num_hidden_layers: a key that is not known in the family qwen3_5_moe"),
        ({"text_config": {"model_type": "llama"}}, r"text_config\.model_type: a qwen3_5_moe has a qwen3_5_moe_text"),
        ({"architectures": ["Qwen3_5MoeForTokenClassification"]}, "no language-model head"),
    ],
)
def test_files_around_a_text_model_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        read({**wrapped("qwen3_5_moe"), **changes})


@pytest.mark.parametrize("family", sorted(NOT_DESCRIBED))
def test_known_model_types_without_a_description_are_refused_with_the_reason(family: str) -> None:
    with pytest.raises(BadInputError, match=f"not covered: model type '{family}' \\(.+\\)") as caught:
        read({"model_type": family, "text_config": {"hidden_size": 8}})
    assert caught.value.field == "model_type"


def test_an_unknown_model_type_offers_those_that_are_near() -> None:
    with pytest.raises(BadInputError, match=r"model type 'deepseek_v31'.*; covered: deepseek_v3"):
        read({"model_type": "deepseek_v31"})


def test_a_format_that_is_missing_is_that_of_pytorch_or_of_what_stands_beside_quantised_weights() -> None:
    assert read_small("mixtral", torch_dtype=...).native_format == "f32"
    quantised = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert read_small("mixtral", torch_dtype=..., quantization_config=quantised).native_format == "bf16"
