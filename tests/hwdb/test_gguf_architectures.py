"""Models of GGUF files of every architecture: what the `config.json` of the same model gives; keys that change it."""

import json
import struct
from math import pi
from pathlib import Path
from typing import Any

import pytest
from gguf_headers import header_bytes
from gguf_metadata import ARCHITECTURES, SIGMOID, Metadata, metadata
from tiny_configs import TINY
from together import together

from helmsman.hwdb import load_model
from helmsman.hwdb.gguf_header import Header, read_header
from helmsman.hwdb.gguf_model import model_from_gguf
from helmsman.hwdb.model_config import model_from_config
from helmsman.lowering.stored_names import gguf_name, stored_tensors
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

CONVERTED = sorted(name for name, config in TINY.items() if config["model_type"] in ARCHITECTURES)
ABOUT_FILES = {"name", "family", "source", "native_format", "eos"}
"""Fields that say where a model comes from."""


def described(name: str) -> Model:
    return model_from_config(TINY[name], name, "config.json")


def from_gguf(
    model: Model, pairs: Metadata, small: dict[str, tuple[float, ...]] | None = None, more: tuple[str, ...] = ()
) -> Model:
    """The model of a file with the tensors of `model`, `small` ones with values, and `more` of one value."""
    shapes = [(stored.name, stored.shape) for stored in stored_tensors(model, gguf_name)]
    shapes += [(key, (len(values),)) for key, values in (small or {}).items()]
    content, size = header_bytes(pairs, [*shapes, *((extra, (1,)) for extra in more)])
    header: Header = read_header(content, "tiny.gguf", size)
    return model_from_gguf(
        header, lambda key: struct.pack(f"<{len((small or {})[key])}f", *(small or {})[key]), "t", content
    )


def small_tensors(name: str) -> dict[str, tuple[float, ...]]:
    return factors(TINY[name])


def factors(config: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """Gemma 4's factors, which tell the pairs of full attention that do not turn; of others none."""
    if config["model_type"] != "gemma4_text":
        return {}
    pairs = config["global_head_dim"] // 2
    return {"rope_freqs.weight": (1.0,) * (pairs // 4) + (1e30,) * (pairs - pairs // 4)}


def facts(model: Model) -> dict[str, Any]:
    return {key: value for key, value in model.model_dump().items() if key not in ABOUT_FILES}


@together("name", CONVERTED)
def test_a_file_says_what_the_config_says(name: str) -> None:
    expected = described(name)
    model = from_gguf(expected, metadata(TINY[name]), small_tensors(name))
    assert facts(model) == facts(expected)
    assert [(tensor.name, tensor.layer, tensor.shape) for tensor in tensors(model)] == [
        (tensor.name, tensor.layer, tensor.shape) for tensor in tensors(expected)
    ]
    assert model.eos == (2,) and model.source == "tiny.gguf"


def refusal(name: str, changes: Metadata, **more: Any) -> BadInputError:
    """The error of a file whose metadata has `changes`; None leaves a key out."""
    pairs = {**metadata(TINY[name]), **changes}
    with pytest.raises(BadInputError) as caught:
        from_gguf(described(name), {key: value for key, value in pairs.items() if value is not None}, **more)
    return caught.value


def test_an_architecture_that_is_not_covered_is_refused_by_name() -> None:
    error = refusal("qwen3_moe", {"general.architecture": "mamba"})
    assert error.field == "general.architecture" and error.value == "mamba" and "qwen3moe" in str(error.remedy)


@together(
    ("name", "changes", "field"),
    [
        ("qwen3_moe", {"qwen3moe.expert_group_scale": 0.05}, "qwen3moe.expert_group_scale"),
        ("qwen3_moe", {"qwen3moe.expert_weights_scale": 2.0}, "qwen3moe.expert_weights_scale"),
        ("qwen3_moe", {"qwen3moe.expert_gating_func": SIGMOID}, "qwen3moe.expert_gating_func"),
        ("qwen3_moe", {"qwen3moe.expert_used_count": 9}, "qwen3moe.expert_used_count"),
        ("qwen3_moe", {"qwen3moe.attention.value_length": 16}, "qwen3moe.attention.value_length"),
        ("qwen3_moe", {"qwen3moe.context_length": None}, "qwen3moe.context_length"),
        ("mixtral", {"llama.rope.scaling.type": "ntk"}, "llama.rope.scaling.type"),
        ("mixtral", {"llama.feed_forward_length": [24, 24, 24, 48]}, "llama.feed_forward_length"),
        ("lfm2", {"lfm2.attention.head_count_kv": [0, 2, 0]}, "lfm2.attention.head_count_kv"),
        ("lfm2", {"lfm2.attention.head_count_kv": [0, 2, 0, 4]}, "lfm2.attention.head_count_kv"),
        ("deepseek_v3", {"deepseek2.expert_group_count": 3}, "deepseek2.expert_group_count"),
        ("deepseek_v3", {"deepseek2.rope.dimension_count": 32}, "deepseek2.attention.key_length_mla"),
        ("gemma4_text", {"gemma4.feed_forward_length": [112, 112, 112, 224]}, "gemma4.feed_forward_length"),
        ("qwen3_5_text", {"qwen35.ssm.inner_size": 50}, "qwen35.ssm.inner_size"),
        ("granitemoehybrid", {"granitehybrid.attention.scale": None}, "granitehybrid.attention.scale"),
        ("glm4_moe", {"glm4moe.nextn_predict_layers": 5}, "glm4moe.nextn_predict_layers"),
    ],
)
def test_what_would_be_another_model_is_refused_by_its_key(name: str, changes: Metadata, field: str) -> None:
    assert refusal(name, changes, small=small_tensors(name)).field == field


@pytest.mark.parametrize(
    "extra", ["blk.0.attn_q_norm.weight", "blk.0.ffn_exp_probs.weight", "mm.0.weight", "blk.9.attn_q.weight"]
)
def test_a_tensor_that_would_be_left_out_is_refused(extra: str) -> None:
    assert refusal("mixtral", {}, more=(extra,)).field == extra


def test_tensors_of_draft_blocks_are_known() -> None:
    more = ("blk.4.nextn.eh_proj.weight", "blk.4.attn_q.weight", "blk.4.nextn.shared_head_norm.weight")
    model = from_gguf(described("glm4_moe"), metadata(TINY["glm4_moe"]), more=more)
    assert model.layers == 4 and model.drafts == described("glm4_moe").drafts


def test_older_files_of_latent_attention_state_a_heads_own_lengths() -> None:
    pairs = metadata(TINY["deepseek_v3"])
    for part in ("key", "value"):
        pairs[f"deepseek2.attention.{part}_length"] = pairs.pop(f"deepseek2.attention.{part}_length_mla")
    assert facts(from_gguf(described("deepseek_v3"), pairs)) == facts(described("deepseek_v3"))


def test_layers_of_a_recurrent_pattern_may_be_listed() -> None:
    pairs = metadata(TINY["qwen3_next"])
    del pairs["qwen3next.full_attention_interval"]
    pairs["qwen3next.attention.recurrent_layers"] = [True, True, True, False]
    assert facts(from_gguf(described("qwen3_next"), pairs)) == facts(described("qwen3_next"))


def test_llama_4s_rotation_comes_from_factors_per_frequency() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 16.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
    }
    expected = model_from_config({**TINY["llama4_text"], "rope_theta": 5e5, "rope_scaling": scaling}, "l", "c")
    pairs = {**metadata(TINY["llama4_text"]), "llama4.rope.freq_base": 5e5}
    turns = [8192 * 5e5 ** -(place / 16) / (2 * pi) for place in range(0, 16, 2)]
    steps = tuple(1.0 if turn >= 1 else 16.0 for turn in turns)
    model = from_gguf(described("llama4_text"), pairs, {"rope_freqs.weight": steps})
    assert {1.0, 16.0} == set(steps) and facts(model) == facts(expected)


def test_phis_factors_and_their_magnitude_are_the_files() -> None:
    longrope = {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
        "long_factor": [2.0] * 8,
        "short_mscale": 1.25,
        "long_mscale": 1.25,
        "original_max_position_embeddings": 64,
    }
    expected = model_from_config({**TINY["phimoe"], "rope_scaling": longrope}, "p", "c")
    pairs = {
        **metadata(TINY["phimoe"]),
        "phimoe.rope.scaling.attn_factor": 1.25,
        "phimoe.rope.scaling.original_context_length": 64,
    }
    small = {f"rope_factors_{name}.weight": tuple(longrope[f"{name}_factor"]) for name in ("short", "long")}
    assert facts(from_gguf(described("phimoe"), pairs, small)) == facts(expected)


@pytest.mark.parametrize("routed", [False, True])
def test_granites_whose_layers_all_attend_are_read_too(routed: bool) -> None:
    """Converters call these granite and granitemoe, and turn their heads."""
    name = "granitemoehybrid" if routed else "granitemoehybrid-dense"
    config = {**TINY[name], "layer_types": ["attention"] * 4, "position_embedding_type": "rope"}
    expected = model_from_config(config, name, "config.json")
    architecture = "granitemoe" if routed else "granite"
    own = {key.removeprefix("granitehybrid."): value for key, value in metadata(config).items()}
    pairs = {
        f"{architecture}.{key}": value
        for key, value in own.items()
        if not key.startswith(("ssm.", "general.", "tokenizer."))
    }
    pairs |= {"general.architecture": architecture, f"{architecture}.attention.head_count_kv": 2}
    model = from_gguf(expected, pairs)
    assert facts(model) == facts(expected)


def test_gemma_27b_scales_scores_by_its_hidden_size() -> None:
    """Files do not say it: the number of layers tells it."""
    config = {**TINY["gemma2"], "num_hidden_layers": 46, "query_pre_attn_scalar": 64 / 4}
    expected = model_from_config(config, "gemma", "config.json")
    assert facts(from_gguf(expected, metadata(config))) == facts(expected)


@pytest.mark.parametrize(
    "name",
    [
        "DeepSeek-V2-Lite",
        "GLM-4.5-Air",
        "Mixtral-8x7B-v0.1",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "Qwen3-Next-80B-A3B-Instruct",
        "gemma-2-27b",
        "gemma-4-26B-A4B",
        "gemma-4-E2B-it",
        "gpt-oss-20b",
    ],
)
def test_files_of_released_models_say_what_their_configs_say(name: str) -> None:
    content = json.loads((Path(load_model.__file__).parent / "models" / f"{name}.json").read_text())
    config = content.get("text_config", content)
    expected = model_from_config(config, name, "config.json")
    model = from_gguf(expected, metadata(config), factors(config))
    assert facts(model) == {**facts(expected), "native_quantisation": None}
