"""quantization_config: what it states about stored bytes, by method, and what is refused by name."""

from typing import Any

import pytest
from small_configs import check_refused, read_small
from together import together

from helmsman.hwdb.configs.parts.module_names import joined_names
from helmsman.hwdb.load_model import load_model
from helmsman.hwdb.model_config import model_from_config
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model
from helmsman.schemas.native_quantisation import NativeQuantisation, StoredModules

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 64]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}


def stored(model: Model) -> NativeQuantisation:
    assert model.native_quantisation is not None
    return model.native_quantisation


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (AWQ, StoredModules(values="int", bits=4, group=128)),
        ({**AWQ, "quant_method": "gptq", "group_size": -1} | {"version": None, "zero_point": None},
         StoredModules(values="int", bits=4)),
        (FP8, StoredModules(values="float", bits=8, rows=128, group=64)),
        ({"quant_method": "fp8"}, StoredModules(values="float", bits=8)),
        ({"quant_method": "mxfp4"},
         StoredModules(values="float", bits=4, group=32, modules=("model.layers.*.mlp.experts",))),
    ],
)  # fmt: skip
def test_methods_say_how_bytes_lie_and_nothing_about_the_model(config: dict[str, Any], expected: StoredModules) -> None:
    model = read_small("mixtral", quantization_config=config)
    assert stored(model).stored == (expected,) and stored(model).method == config["quant_method"]
    assert model.model_copy(update={"native_quantisation": None}) == read_small("mixtral")
    assert model.native_format == "bf16"


def test_modules_that_are_kept_are_named() -> None:
    kept = ["lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(4)), "model.layers.0.self_attn"]
    model = read_small("mixtral", quantization_config={**FP8, "modules_to_not_convert": kept})
    assert stored(model).kept == ("lm_head", "model.layers.*.mlp.gate", "model.layers.0.self_attn")


def test_compressed_tensors_have_groups_with_targets() -> None:
    weights = {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group", "symmetric": True}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    config = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["re:.*self_attn.*"]}
    model = read_small("deepseek_v3", quantization_config=config)
    assert stored(model) == NativeQuantisation(
        method="compressed-tensors", stored=(StoredModules(values="int", bits=4, group=32),), kept=("re:.*self_attn.*",)
    )


def test_files_of_modelopt_may_lack_the_method() -> None:
    group = {"weights": {"num_bits": 8, "type": "float"}}
    config = {"quant_algo": "FP8", "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": "FP8"}
    model = read_small("mixtral", quantization_config=config)
    expected = NativeQuantisation(method="modelopt", stored=(StoredModules(values="float", bits=8),), kept=("lm_head",))
    assert stored(model) == expected


def test_experts_of_four_bits_beside_blocks_of_eight() -> None:
    group = {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}
    nvfp4 = {
        **FP8,
        "moe_quant_algo": "NVFP4",
        "group_size": 16,
        "config_groups": {"group_0": group},
        "ignore": ["head"],
    }
    blocks = StoredModules(values="float", bits=8, rows=128, group=64)
    names = ("model.layers.*.mlp.experts",)
    for config, size in ((nvfp4, 16), ({**FP8, "expert_dtype": "fp4"}, 32)):
        experts = StoredModules(values="float", bits=4, group=size, modules=names)
        assert stored(read_small("deepseek_v4", quantization_config=config)).stored == (blocks, experts)
    check_refused("deepseek_v4", "expert_dtype", "covered: fp4, fp8", expert_dtype="fp6", quantization_config=FP8)


@together(
    ("config", "field", "message"),
    [
        ({"quant_method": "bitsandbytes"}, "quant_method", "not covered"),
        ({}, "quant_method", "missing"),
        ({**AWQ, "bits": 1}, "bits", "must be from 2 to 8"),
        ({**AWQ, "act_order": True}, "act_order", "not known in a quantization_config"),
        ({**FP8, "weight_block_size": [128]}, "weight_block_size", "2 numbers are expected"),
        ({**FP8, "weight_block_size": [0, 128]}, "weight_block_size", "rows and columns"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"a": 1}}, "dynamic", "other formats for some modules"),
        ({"quant_method": "modelopt"}, "config_groups", "missing"),
        ({"quant_method": "modelopt", "config_groups": {}}, "config_groups", "a group is expected"),
        (
            {"quant_method": "modelopt", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "posit"}}}},
            "config_groups.group_0.weights.type",
            "not covered",
        ),
    ],
)
def test_what_is_refused(config: dict[str, Any], field: str, message: str) -> None:
    check_refused("mixtral", f"quantization_config.{field}", message, quantization_config=config)


def test_a_dense_model_with_quantised_weights_is_described_but_no_dense_one() -> None:
    content = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 128, "quantization_config": AWQ,
    }  # fmt: skip
    model = model_from_config(content, "small", "config.json")
    assert stored(model).method == "awq" and model.native_format == "bf16"
    with pytest.raises(BadInputError, match="weights quantised by awq"):
        _ = model.dense


def test_released_files_say_what_they_store() -> None:
    experts = StoredModules(values="float", bits=4, group=32, modules=("model.layers.*.mlp.experts",))
    assert stored(load_model("gpt-oss-120b")).stored == (experts,)
    assert "model.layers.*.self_attn" in stored(load_model("gpt-oss-120b")).kept
    fp8 = StoredModules(values="float", bits=8, rows=128, group=128)
    assert stored(load_model("DeepSeek-V3")).stored == (fp8,)
    assert stored(load_model("DeepSeek-V4-Flash")).stored == (fp8, experts)
    assert stored(load_model("Kimi-K2.5")).stored == (StoredModules(values="int", bits=4, group=32),)
    mixed = stored(load_model("Qwen3.6-35B-A3B-NVFP4"))
    assert [(part.values, part.bits, part.group) for part in mixed.stored] == [("float", 8, None), ("float", 4, 16)]
    assert "model.language_model.layers.*.mlp.experts" in mixed.stored[1].modules
    assert load_model("Qwen3-30B-A3B").native_quantisation is None


def test_names_are_joined_where_they_name_all_layers_of_some_letters() -> None:
    names = [f"layers.{layer}.mixer.in_proj" for layer in (0, 1, 3)]
    assert joined_names(names, "GGAG") == ("layers.*.mixer.in_proj",)
    assert joined_names(names, "GGGG") == tuple(names)
    assert joined_names(["layers.7.q"], "AA") == ("layers.7.q",)
