"""`--model`: names, directories, files, plans; close matches; contexts and sliding windows."""

import json
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Mixtral-8x7B-v0.1", r"mixture of experts \(num_local_experts=8\)"),
        ("DeepSeek-V2-Lite", "multi-head latent attention"),
        ("opt-350m", "OPT-350M's post-norm"),
        ("gemma-2-9b", "Gemma 2"),
        ("gemma-3-4b-it", "Gemma 3"),
        ("gpt-oss-20b", "mixture of experts"),
        ("Qwen3-30B-A3B", "mixture of experts"),
    ],
)
def test_known_but_not_covered_models_are_refused_by_name(name: str, reason: str) -> None:
    assert name not in catalogue_names()
    with pytest.raises(BadInputError, match=f"{name}.*not covered.*{reason}"):
        load_model(name)


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
    with pytest.raises(BadInputError, match="not covered"):
        load_model("mistralai/Mixtral-8x7B-v0.1")


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


def test_sliding_window_is_refused_only_when_shorter_than_the_context() -> None:
    mistral = load_model("Mistral-7B-v0.1")
    check_context(mistral, 4096)
    with pytest.raises(BadInputError, match="sliding window of 4096 tokens") as caught:
        check_context(mistral, 4097)
    assert caught.value.exit_code == 5
    check_context(load_model("Phi-3.5-mini-instruct"), 131072)
    check_context(load_model("Qwen2.5-7B"), 131072)
