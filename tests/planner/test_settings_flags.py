"""Flags that are written and read are those of the engines: by their parsers' lists, kept with their sources, and by
the engines themselves where they are installed."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helmsman.library import emit
from helmsman.planner.settings import exllamav3, freetoken, ktransformers, llama_grammar, sglang, vllm
from helmsman.planner.settings.command_flags import CommandGrammar, flags_after_program, words_of

KEPT = Path(__file__).parents[1] / "cases" / "engine_flags"
PARSER = "HELM_LLAMA_PARSER"
"""The environment's name of a program that prints what llama.cpp's own parser makes of a command, as JSON."""

GRAMMARS: dict[str, CommandGrammar] = {
    "llama_cpp": llama_grammar.GRAMMAR,
    "vllm": vllm.GRAMMAR,
}
EXPERTS = r"blk\.(7|2[0-9])\.ffn_.*exps=CPU"
ASKED = {"model": "Qwen3-30B-A3B", "hardware": "a4000-7950x", "format": "q4_k_m"}


def kept(engine: str) -> dict[str, int]:
    """Return the number of values of every flag that an engine's source has."""
    values: dict[str, int] = json.loads((KEPT / f"{engine}.json").read_text())["values"]
    return values


@pytest.mark.parametrize("engine", GRAMMARS)
def test_flags_take_as_many_values_as_the_engines_say(engine: str) -> None:
    grammar = GRAMMARS[engine]
    for name, values in kept(engine).items():
        flag = grammar.known.get(name)
        assert flag is not None, name
        assert flag.values in (values, -1), (name, flag.values, values)


@pytest.mark.parametrize(("engine", "name"), [("llama_cpp", "llama.cpp"), ("vllm", "vllm")])
def test_commands_have_flags_that_the_engines_know(engine: str, name: str) -> None:
    for strategy in ("llama-cpp", "expert-split", "layer-split"):
        text = emit({**ASKED, "strategy": strategy, "options": {}}, name).text
        used = [word for word in flags_after_program(words_of(text)) if word.startswith("-")]
        assert used and not [word for word in used if word not in kept(engine)], text


@pytest.mark.parametrize("module", [llama_grammar, vllm, sglang, ktransformers, freetoken, exllamav3])
def test_a_flag_has_one_meaning(module: Any) -> None:
    names = [name for flag in module.GRAMMAR.flags for name in flag.names]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


@pytest.mark.skipif(PARSER not in os.environ, reason=f"{PARSER} names no parser of llama.cpp")
@pytest.mark.parametrize(
    ("options", "more", "said"),
    [
        ({"ngl": 20}, {}, {"ngl": 20, "n_parallel": 1, "n_ctx": 4096, "ctk": "f16", "n_ubatch": 512}),
        (
            {"ngl": 49, "n_cpu_moe": 20},
            {"kv_format": "q8_0", "batch": 2},
            {"ctk": "q8_0", "ctv": "q8_0", "n_ctx": 8192},
        ),
        ({"ngl": 49, "cpu_moe": True, "ubatch": 2048}, {}, {"n_batch": 2048, "no_op_offload": 0}),
        (
            {"ngl": 49, "override_tensor": r"blk\.(7|2[0-9])\.ffn_.*exps=CPU", "no_op_offload": True},
            {},
            {"no_op_offload": 1},
        ),
    ],
)
def test_llama_cpp_understands_what_is_written(options: Any, more: dict[str, Any], said: dict[str, Any]) -> None:
    content = emit({**ASKED, "strategy": "llama-cpp", "context": 4096, "options": options, **more}, "llama.cpp")
    done = subprocess.run(
        [os.environ[PARSER], *flags_after_program(words_of(content.text))], capture_output=True, text=True, check=True
    )
    parsed = json.loads(done.stdout.splitlines()[-1])
    assert said.items() <= parsed.items(), parsed
    if "override_tensor" in options:
        assert parsed["overrides"] and all(buffer == "CPU" for _, buffer in parsed["overrides"])


def test_accelerate_takes_its_maps() -> None:
    """On a model without data: every module has its place, and processors' modules are brought when they are used."""
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    question = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "accelerate"}
    content = emit({**question, "options": {"modules": "0-12"}}, "accelerate")
    places: dict[str, Any] = json.loads(content.text)
    config = transformers.Qwen3Config(
        hidden_size=64, intermediate_size=64, num_hidden_layers=28, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, vocab_size=128, tie_word_embeddings=True,
    )  # fmt: skip
    with accelerate.init_empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    accelerate.utils.modeling.check_device_map(model, places)
    assert sum(place == "cpu" for place in places.values()) == 28 + 2 - 13 and places["lm_head"] == 0
    assert all(torch.device("meta") == value.device for value in model.parameters())
