"""`--model`: names, directories, files, plans; close matches; contexts and sliding windows."""

import json
from pathlib import Path

import pytest
from small_configs import small_config

from helmsman.hwdb.load_model import catalogue_names, check_context, load_model
from helmsman.schemas.errors import BadInputError, UsageError

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
PROMISED = """
opt-125m opt-1.3b opt-2.7b opt-6.7b opt-13b opt-30b opt-66b opt-175b
Llama-2-7b-hf Llama-2-13b-hf Llama-2-70b-hf Meta-Llama-3-8B Llama-3.1-8B Llama-3.1-70B Llama-3.1-405B
Llama-3.2-1B Llama-3.2-3B CodeLlama-34b-hf CodeLlama-34b-Instruct-hf Mistral-7B-v0.1
Qwen2.5-0.5B Qwen2.5-1.5B Qwen2.5-3B Qwen2.5-7B Qwen2.5-7B-Instruct Qwen2.5-14B Qwen2.5-32B Qwen2.5-72B
Qwen3-0.6B Qwen3-1.7B Qwen3-4B Qwen3-8B Qwen3-14B Qwen3-32B
Phi-3-mini-4k-instruct Phi-3.5-mini-instruct Phi-4-mini-instruct phi-4 TinyLlama-1.1B-Chat-v1.0
opt-350m Mixtral-8x7B-v0.1 Mixtral-8x22B-v0.1 Qwen3-30B-A3B Qwen3-235B-A22B Qwen3-Coder-480B-A35B-Instruct
OLMoE-1B-7B-0924 MiniMax-M2.5 Phi-3.5-MoE-instruct gpt-oss-20b gpt-oss-120b Llama-4-Scout-17B-16E-Instruct
gemma-2-2b gemma-2-9b gemma-2-27b gemma-3-1b-it gemma-3-4b-it gemma-3-12b-it gemma-3-27b-it
gemma-4-26B-A4B gemma-4-31B-it-NVFP4 gemma-4-E2B-it gemma-4-E4B-it Qwen3-Next-80B-A3B-Instruct
Qwen3.5-27B Qwen3.5-35B-A3B Qwen3.5-122B-A10B Qwen3.5-397B-A17B Qwen3.6-27B-NVFP4 Qwen3.6-35B-A3B-NVFP4
DeepSeek-V2-Lite DeepSeek-V3 DeepSeek-R1 DeepSeek-V3.2 DeepSeek-V4-Flash DeepSeek-V4-Pro Kimi-K2-Instruct Kimi-K2.5
Kimi-Linear-48B-A3B-Instruct GLM-4.5-Air GLM-4.7-Flash GLM-5.2 Nemotron-H-56B-Base-8K
NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
granite-3.1-1b-a400m-instruct
granite-4.0-h-tiny granite-4.0-h-1b LFM2-1.2B LFM2-8B-A1B Falcon-H1-0.5B Falcon-H1-7B-Instruct
"""


def test_the_promised_catalogue_is_there() -> None:
    assert set(PROMISED.split()) <= set(catalogue_names())


def test_every_catalogue_model_loads_and_says_its_source() -> None:
    for name in catalogue_names():
        model = load_model(name)
        assert model.name == name
        assert model.source not in ("unknown", f"model {name}")


def test_names_in_any_case_and_with_metas_former_prefix() -> None:
    assert load_model("qwen3-8b") == load_model("Qwen3-8B")
    assert load_model("OPT-30B").name == "opt-30b"
    assert load_model("llama-3-8b").name == "Meta-Llama-3-8B"
    assert load_model("Meta-Llama-3.1-8B").name == "Llama-3.1-8B"


def test_a_model_whose_shapes_no_source_states_is_refused_by_name() -> None:
    assert "granite-4.0-h-small" not in catalogue_names()
    with pytest.raises(BadInputError, match=r"model granite-4.0-h-small: layer_types: missing"):
        load_model("granite-4.0-h-small")


def test_models_that_lack_facts_to_run_say_which() -> None:
    unknown = {name: load_model(name).unknown for name in catalogue_names() if load_model(name).unknown}
    assert set(unknown) == {
        "Falcon-H1-7B-Instruct", "granite-4.0-h-1b", "granite-4.0-h-tiny", "Phi-3.5-MoE-instruct",
    }  # fmt: skip
    assert "attention_multiplier" in unknown["granite-4.0-h-tiny"]


def test_unknown_name_offers_close_matches() -> None:
    with pytest.raises(UsageError, match=r"unknown model \(got 'Qwen3-9B'\); did you mean .*Qwen3-8B"):
        load_model("Qwen3-9B")


@pytest.mark.parametrize("name", ["", "zzzzzz", "x" * 5000, "a\x00b"])
def test_hopeless_name_says_what_is_accepted(name: str) -> None:
    with pytest.raises(UsageError, match="give a catalogue name such as Qwen3-8B") as caught:
        load_model(name)
    assert caught.value.exit_code == 2


def test_missing_path_says_so() -> None:
    with pytest.raises(BadInputError, match=r"no such file or directory; check the path; .* Qwen3-8B"):
        load_model("./Qwen3-8B")
    with pytest.raises(BadInputError, match=r"no such file or directory"):
        load_model("nobody/no-such-model")
    with pytest.raises(BadInputError, match=r"nowhere\.json: no such file"):
        load_model("nowhere.json")


def test_a_hub_id_is_the_catalogues_model() -> None:
    assert load_model("Qwen/Qwen3-8B") == load_model("qwen/qwen3-8b") == load_model("Qwen3-8B")
    assert load_model("meta-llama/Meta-Llama-3.1-8B").name == "Llama-3.1-8B"
    assert load_model("mistralai/Mixtral-8x7B-v0.1").name == "Mixtral-8x7B-v0.1"


def test_a_path_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    (tmp_path / "Qwen" / "Qwen3-8B" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    assert load_model("Qwen/Qwen3-8B").family == "llama"


def test_a_directory_of_any_name_gives_a_printable_one(tmp_path: Path) -> None:
    folder = tmp_path / "a\udcffb\n"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    model = load_model(str(folder))
    assert model.name == "ab"
    assert model.source.endswith("ab/config.json")


def test_directory_and_file(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "other.json").write_text(json.dumps(CONFIG))
    assert load_model(str(folder)).name == "my-model"
    assert load_model(str(folder / "config.json")).name == "my-model"
    assert load_model(str(tmp_path / "other.json")).name == "other"
    assert load_model(str(folder)).source == str(folder / "config.json")


def test_model_document_and_plan(tmp_path: Path) -> None:
    model = load_model("Phi-4-mini-instruct")
    document, plan = tmp_path / "model.json", tmp_path / "plan.json"
    document.write_text(model.to_json())
    plan.write_text(json.dumps({"schema": "helm.plan/1", "model": model.to_dict()}))
    assert load_model(str(document)) == model
    assert load_model(str(plan)) == model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[1]", "a JSON object is expected"),
        ("{}", "model_type: missing"),
        ('{"hidden_size": NaN}', "NaN is not a number"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('{"a": ' * 80 + "1" + "}" * 80, "nested deeper"),
        ('{"schema": "helm.trace/1"}', "schema: not a model"),
        ('{"schema": "helm.plan/1"}', "model: missing"),
        ('{"schema": "helm.plan/1", "model": {"layers": -1}}', r"model\.\w+: Field required"),
        ('{"pad": "' + "x" * 2**20 + '"}', "larger than the limit of 1048576 bytes"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=message) as caught:
        load_model(str(path))
    assert caught.value.file == str(path)


def test_directory_without_config(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"neither config.json nor GGUF files in this directory"):
        load_model(str(tmp_path))


def test_context_limits() -> None:
    check_context(load_model("Qwen3-8B"), 40960)
    with pytest.raises(UsageError, match=r"context: beyond the 40960 tokens of Qwen3-8B \(got 40961\)"):
        check_context(load_model("Qwen3-8B"), 40961)


def test_a_sliding_window_bounds_no_context() -> None:
    for name, context in (("Mistral-7B-v0.1", 32768), ("gemma-3-27b-it", 131072), ("gpt-oss-20b", 131072)):
        check_context(load_model(name), context)


def test_documents_of_both_versions_are_read(tmp_path: Path) -> None:
    model = load_model("Qwen3-8B")
    for name, document in (("old", model.dense), ("new", model)):
        path = tmp_path / f"{name}.json"
        path.write_text(document.to_json())
        assert load_model(str(path)) == model
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"schema": "helm.plan/1", "model": model.dense.to_dict()}))
    assert load_model(str(plan)) == model


def test_an_endless_step_of_time_is_read_and_other_infinities_are_not(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    content = small_config("nemotron_h")
    path.write_text(json.dumps(content))
    assert '"time_step_limit": [0.0, Infinity]' in path.read_text()
    assert load_model(str(path)).pattern == "MeAF"
    path.write_text(json.dumps({**content, "layer_norm_epsilon": float("inf")}))
    with pytest.raises(BadInputError, match="layer_norm_epsilon: .*not a number that can be used"):
        load_model(str(path))
    path.write_text(json.dumps({**content, "time_step_limit": [float("nan"), 1.0]}))
    with pytest.raises(BadInputError, match="NaN is not a number"):
        load_model(str(path))


@pytest.mark.parametrize(
    ("tensor", "fits"),
    [
        ("model.language_model.layers.3.self_attn.o_proj.weight", True),
        ("model.layers.4.eh_proj.weight", True),
        ("model.layers.5.input_layernorm.weight", False),
        ("backbone.layers.5.norm.weight", False),
        ("vision_tower.layers.9.mlp.weight", True),
    ],
)
def test_weights_beside_a_config_may_have_its_draft_heads_and_no_more(tensor: str, fits: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(small_config("deepseek_v3")))
    index = {"metadata": {}, "weight_map": {tensor: "model-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    if fits:
        assert load_model(str(tmp_path)).pattern == "Llll"
    else:
        with pytest.raises(BadInputError, match="num_hidden_layers: the weights beside it have a tensor of block 5"):
            load_model(str(tmp_path))
