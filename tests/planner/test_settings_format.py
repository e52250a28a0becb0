"""The format of weights that settings of an engine state."""

import json
from pathlib import Path

import pytest

import helmsman
from helmsman.cli import plan
from helmsman.planner.settings.settings_format import settings_format
from helmsman.schemas.errors import UsageError

QUESTION = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop"}


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ("llama-server -m Qwen3-0.6B-Q4_K_M.gguf -ngl 9", "q4_k_m"),
        ("llama-server --model=/models/qwen3-0.6b-q8_0.gguf", "q8_0"),
        ("llama-server -m 'C:\\models\\Qwen3-0.6B-Q6_K.gguf'", "q6_k"),
        ("llama-server -m Qwen3-0.6B-Q4_K_M-00001-of-00003.gguf", "q4_k_m"),
        ("llama-server -hf ggml-org/Qwen3-0.6B-GGUF:Q8_0 -ngl 9", "q8_0"),
        ("# a comment\nFROM ./Qwen3-0.6B-Q5_K_M.gguf\nPARAMETER num_gpu 9", "q5_k_m"),
        ("FROM qwen3:0.6b", "q4_k_m"),
        ('{"model_path": "/models/Qwen3-0.6B-Q8_0.gguf", "total_slots": 1}', "q8_0"),
        ("llama-server -m model.gguf -ngl 9", None),
        ("llama-server -ngl 9", None),
        ("python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-0.6B", None),
        ("llama-server -hf ggml-org/Qwen3-0.6B-GGUF", "q4_k_m"),
        ("llama-server -hf somebody/Qwen3-0.6B", "q4_k_m"),
        ("llama-server -hf ggml-org/gpt-oss-20b-GGUF", "mxfp4"),
        ("llama-server -hf unsloth/gpt-oss-20b-GGUF:F16", "native"),
        ("FROM gpt-oss:20b", "native"),
    ],
)
def test_settings_state_a_format_by_the_name_of_what_they_run(text: str, fmt: str | None) -> None:
    assert settings_format(text, "Qwen3-0.6B") == fmt


def test_a_format_of_the_question_comes_before_that_of_the_settings(tmp_path: Path) -> None:
    text = "llama-server -m Qwen3-0.6B-Q4_K_M.gguf"
    assert settings_format(text, "qwen3:0.6b-q8_0") is None
    assert settings_format("llama-server -m Qwen3-0.6B-Q8_0.gguf", "qwen3:0.6b") == "q8_0", "a tag only means one"
    (tmp_path / "config.json").write_text("{}")
    assert settings_format(text, str(tmp_path)) is None


@pytest.mark.parametrize(
    ("file", "near"),
    [
        ("Qwen3-0.6B-UD-Q3_K_XL.gguf", "q3_k_m"),
        ("Qwen3-0.6B-Q5_K_L.gguf", "q5_k_m"),
        ("Qwen3-0.6B-Q9_Z.gguf", "q4_k_m"),
        ("Qwen3-0.6B-Q4_0_4_4.gguf", "q4_0"),
    ],
)
def test_a_format_that_is_not_planned_by_name_is_refused_with_one_near_it(file: str, near: str) -> None:
    """Instead of the 16 bits of a question that names no format."""
    with pytest.raises(UsageError, match="not planned by name") as raised:
        settings_format(f"llama-server -m {file} -ngl 9", "Qwen3-0.6B")
    assert raised.value.value == file and f"as {near}," in str(raised.value.remedy)


def test_a_reading_says_which_format_it_assumed() -> None:
    text = "llama-server -m Qwen3-0.6B-Q8_0.gguf -ngl 9 -c 512 -np 1"
    by_settings, by_question = (
        helmsman.read_settings(text, each) for each in (QUESTION, {**QUESTION, "format": "q8_0"})
    )
    assert by_settings.yours == by_question.yours
    assert any("weights in q8_0" in line for line in by_settings.assumed)
    assert not any("weights in" in line for line in by_question.assumed)
    assert helmsman.read_settings(text, {**QUESTION, "format": "f16"}).yours != by_settings.yours


def test_the_command_takes_it_likewise(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--model", "Qwen3-0.6B", "--hw", "rtx4060-laptop", "--from", "llama-server -m X-Q8_0.gguf -ngl 9 -c 512"]
    assert plan.main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert any("weights in q8_0" in line for line in document["assumed"])
