"""Flags that are written and read are those of the engines: by lists of their parsers and documents, kept with their
sources, and by the engines themselves where they are installed."""

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from helmsman.analysis.ask_settings import reading_of, settings_of
from helmsman.library import emit
from helmsman.planner.decide import decide
from helmsman.planner.read_request import request_from
from helmsman.planner.request import PlanRequest
from helmsman.planner.settings import (
    deepspeed,
    exllamav3,
    freetoken,
    ktransformers,
    llama_grammar,
    lm_studio,
    ollama,
    sglang,
    vllm,
)
from helmsman.planner.settings.command_flags import CommandGrammar, flags_after_program, words_of
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan

KEPT = Path(__file__).parents[1] / "cases" / "engine_flags"
PARSER = "HELM_LLAMA_PARSER"
"""The environment's name of a program that prints what llama.cpp's own parser makes of a command, as JSON."""

GRAMMARS: dict[str, CommandGrammar] = {
    "llama_cpp": llama_grammar.GRAMMAR,
    "vllm": vllm.GRAMMAR,
    "sglang": sglang.GRAMMAR,
    "ktransformers": ktransformers.GRAMMAR,
    "freetoken": freetoken.GRAMMAR,
    "exllamav3": exllamav3.GRAMMAR,
}
FILES = {
    "ollama": [*ollama._PLACED, *ollama._UNPRICED, *ollama._IDLE, *ollama._DROPPED, *ollama._INSTRUCTIONS],
    "lm_studio": [
        *lm_studio._PLACED,
        *lm_studio._UNPRICED,
        *lm_studio._IDLE,
        *(f"gpu.{key}" for key in lm_studio._GPU),
    ],
    "deepspeed": [
        *deepspeed._OTHERS,
        *(f"zero_optimization.{key}" for key in deepspeed._ZERO),
        *(f"zero_optimization.offload_param.{key}" for key in deepspeed._OFFLOAD),
    ],
}
"""What files of engines may have here."""
KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,), "int": (int,), "text": (str,), "object": (dict,), "share": (int, float, str),
}  # fmt: skip
EXPERTS = r"blk\.(7|2[0-9])\.ffn_.*exps=CPU"
ASKED = {"model": "Qwen3-30B-A3B", "hardware": "a4000-7950x", "format": "q4_k_m"}


@cache
def planned(model: str, strategy: str) -> tuple[PlanRequest[Any], Plan]:
    """Plan once for all engines."""
    request = request_from({**ASKED, "model": model, "strategy": strategy, "options": {}})
    return request, decide(request).plan


def written(strategy: str, engine: str, model: str = "Qwen3-30B-A3B") -> str:
    """Return the command or file of an engine for a strategy's plan."""
    request, plan = planned(model, strategy)
    return settings_of(plan, engine, request).text


def kept(engine: str) -> dict[str, Any]:
    """Return the number of values, or the kind, of what an engine's source has, with that of an earlier version."""
    content: dict[str, Any] = json.loads((KEPT / f"{engine}.json").read_text())
    earlier: dict[str, Any] = content.get("earlier", {"values": {}})["values"]
    return earlier | content["values"]


@pytest.mark.parametrize("engine", GRAMMARS)
def test_flags_take_as_many_values_as_the_engines_say(engine: str) -> None:
    grammar = GRAMMARS[engine]
    for name, values in kept(engine).items():
        flag = grammar.known.get(name)
        assert flag is not None, name
        assert flag.values in (values, -1), (name, flag.values, values)


@pytest.mark.parametrize("engine", [engine for engine in GRAMMARS if engine != "llama_cpp"])
def test_no_flag_is_known_that_an_engine_does_not_have(engine: str) -> None:
    assert not set(GRAMMARS[engine].known) - set(kept(engine))


@pytest.mark.parametrize("engine", GRAMMARS)
def test_commands_have_flags_that_the_engines_know(engine: str) -> None:
    known = kept(engine) if engine == "llama_cpp" else json.loads((KEPT / f"{engine}.json").read_text())["values"]
    for strategy in ("llama-cpp", "expert-split", "layer-split"):
        text = written(strategy, engine.replace("_", "."))
        used = [word for word in flags_after_program(words_of(text)) if word.startswith("-")]
        assert used and not [word for word in used if word not in known], text


@pytest.mark.parametrize("engine", FILES)
def test_no_key_is_known_that_an_engine_does_not_have(engine: str) -> None:
    assert not set(FILES[engine]) - set(kept(engine))


def _entries(content: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    inner = [pair for key, value in content.items() if isinstance(value, dict) for pair in _entries(value, f"{key}.")]
    return [*((f"{before}{key}", value) for key, value in content.items()), *((f"{before}{k}", v) for k, v in inner)]


@pytest.mark.parametrize("engine", ["lm-studio", "deepspeed"])
@pytest.mark.parametrize(("model", "strategy"), [("Qwen3-30B-A3B", "expert-split"), ("Qwen3-8B", "flexgen")])
def test_files_have_keys_and_kinds_that_the_engines_know(engine: str, model: str, strategy: str) -> None:
    known = kept(engine.replace("-", "_"))
    text = written(strategy, engine, model)
    for key, value in _entries(json.loads(text)):
        assert type(value) in KINDS[known[key]], (key, value)


def test_a_modelfile_has_parameters_and_an_environment_that_ollama_knows() -> None:
    text = written("llama-cpp", "ollama")
    for name, value in re.findall(r"^PARAMETER (\S+) (.*)$", text, re.MULTILINE):
        assert kept("ollama")[name] == "int" and int(value) >= 0
    environment = re.findall(r"\b(OLLAMA_\w+)=", text)
    assert environment and all(kept("ollama")[name] == "environment" for name in environment)


def test_a_device_map_has_places_that_accelerate_knows() -> None:
    text = emit({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}, "accelerate").text
    assert all(type(place) is int or place in kept("accelerate") for place in json.loads(text).values())


@pytest.mark.parametrize("module", [llama_grammar, vllm, sglang, ktransformers, freetoken, exllamav3])
def test_a_flag_has_one_meaning(module: Any) -> None:
    names = [name for flag in module.GRAMMAR.flags for name in flag.names]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


@pytest.mark.skipif(PARSER not in os.environ, reason=f"needs llama.cpp's own parser, whose program {PARSER} names")
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


@pytest.mark.parametrize(
    ("checkpoint", "method"),
    [("a/Qwen3-32B-AWQ", "awq"), ("a/Qwen3-32B-FP8", "fp8"), ("a/Qwen3-32B-GPTQ-Int4", "gptq"), ("a/Qwen3-32B", None)],
)
def test_vllm_reads_the_quantisation_from_the_checkpoint(checkpoint: str, method: str | None) -> None:
    question = {"model": "Qwen3-32B", "hardware": "h100-hgx", "format": "bf16", "strategy": "vllm"}
    request = request_from(question)
    named, flagged = (
        reading_of(f"vllm serve {checkpoint} --max-model-len 4096{flag}", request)
        for flag in ("", f" --quantization {method}" if method else "")
    )
    assert named.yours.speed == flagged.yours.speed
    assert any("as its name states" in line for line in named.assumed) == (method is not None)


def test_quantised_values_without_flash_attention_are_refused() -> None:
    """llama.cpp does not start with them."""
    request = request_from({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "llama-cpp"})
    with pytest.raises(UsageError, match="with flash attention alone"):
        reading_of("llama-server -ngl 9 -fa off -ctk q8_0 -ctv q8_0", request)
