"""`helm-plan` for engines people already have: their own options, and every kind of bad input."""

import json

import pytest

from helmsman.cli.plan import main
from helmsman.planner.checks.accept import accept
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document

ASKED = ("--model", "Qwen3-8B", "--hw", "rtx4060-laptop")


def run(capsys, *argv):
    code = main([*ASKED, *(str(word) for word in argv), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("argv", "label", "option"),
    [
        (("accelerate",), "accelerate cuda(", ("same_software", False)),
        (("zero-inference", "--hw", "rtx3090-epyc7h12"), "zero-inference cuda<-cpu(38)", ("resident", False)),
        (("vllm", "--cpu-offload-gb", 10), "vllm cuda(38) 10 GiB offloaded", ("cpu_offload_gb", 10.0)),
        (("vllm", "--cpu-offload-gb", "least"), "vllm cuda(38) 10 GiB offloaded", ("cpu_offload_gb", "least")),
        (("llama-cpp", "--ngl", 8), "llama-cpp -ngl 8", ("ngl", 8)),
        (("llama-cpp", "--override-tensor", "ffn_up=CPU"), "llama-cpp -ngl ", ("override_tensor", "ffn_up=CPU")),
    ],
)
def test_engines_write_plans(capsys, argv, label, option):
    code, plan = run(capsys, "--strategy", *argv)
    assert code == 0 and plan["label"].startswith(label)
    assert plan["strategy"]["name"] == argv[0] and plan["strategy"]["options"][option[0]] == option[1]
    accept(parse_document(Plan, json.dumps(plan).encode(), "plan"))


def test_launch_times_are_the_engines_unless_placements_are_compared(capsys):
    """The same placement with vLLM's captured graphs, and with the launch times of HELM's executor."""
    asked = ("--strategy", "vllm", "--hw", "rtx3090-epyc7h12")
    (_, own), (_, same) = (run(capsys, *asked, *more) for more in ((), ("--same-software",)))
    assert own["residence"] == same["residence"]
    assert 2 * own["predicted"]["decode"]["seconds"]["mid"] < same["predicted"]["decode"]["seconds"]["mid"]


@pytest.mark.parametrize(
    ("argv", "code", "field"),
    [
        (("vllm",), 3, None),
        (("zero-inference", "--resident"), 3, None),
        (("llama-cpp", "--ngl", 37), 3, None),
        (("llama-cpp", "--ngl", -1), 2, "--ngl"),
        (("llama-cpp", "--override-tensor", "ffn_up"), 2, "--override-tensor"),
        (("llama-cpp", "--override-tensor", "ffn_exps=CPU"), 2, "--override-tensor"),
        (("llama-cpp", "--override-tensor", "(=CPU"), 2, "--override-tensor"),
        (("vllm", "--cpu-offload-gb", -1), 2, "--cpu-offload-gb"),
        (("vllm", "--cpu-offload-gb", "most"), 2, "--cpu-offload-gb"),
        (("vllm", "--cpu-offload-gb", "nan"), 2, "--cpu-offload-gb"),
        (("vllm", "--gpu-memory-utilization", 0), 2, "--gpu-memory-utilization"),
        (("vllm", "--gpu-memory-utilization", "nan"), 2, "--gpu-memory-utilization"),
        (("accelerate", "--ngl", 4), 2, "--ngl"),
        (("layer-split", "--cpu-offload-gb", 4), 2, "--cpu-offload-gb"),
        (("flexgen", "--same-software"), 2, "--same-software"),
        (("vllm", "--compress", "all"), 2, "--compress"),
    ],
)
def test_bad_input(capsys, argv, code, field):
    found, document = run(capsys, "--strategy", *argv)
    assert found == code and document["error"]["field"] == field and document["error"]["remedy"]


def test_an_engine_is_named_by_itself(capsys):
    code, plan = run(capsys, "--engine", "llama.cpp", "--build-era", "2025", "--format", "q4_k")
    assert code == 0 and plan["strategy"]["name"] == "llama-cpp"
    assert plan["strategy"]["options"]["build_era"] == "2025"
    assert run(capsys, "--engine", "vllm", "--format", "q4_k")[1]["strategy"]["name"] == "vllm"
    best = run(capsys, "--strategy", "best", "--engine", "llama.cpp", "--build-era", "2025", "--format", "q4_k")
    assert best == (0, plan)


@pytest.mark.parametrize(
    "argv",
    [
        ("Qwen3-8B", "2x RTX 4090", "vllm", "--tensor-parallel-size", "2"),
        ("Qwen3.5-35B-A3B", "4x RTX 4090", "vllm", "--tensor-parallel-size", "4"),
        ("Qwen3-Next-80B-A3B-Instruct", "4x RTX 4090", "ktransformers", "--tensor-parallel-size", "4"),
        ("DeepSeek-V4-Flash", "RTX 4090", "accelerate"),
        ("DeepSeek-V4-Flash", "RTX 4090", "llama-cpp"),
        ("opt-350m", "RTX 4090", "llama-cpp", "--ngl", "5"),
    ],
)
def test_plans_of_engines_are_told_in_words(capsys, argv):
    model, gpu, strategy, *options = argv
    machine = ("--gpu", gpu, "--cpu", "AMD EPYC 7763", "--ram", "2TB")
    assert main(["--model", model, *machine, "--strategy", strategy, *options]) == 0
    told = capsys.readouterr().out
    assert f"plan         {strategy}" in told and "tokens/s" in told


@pytest.mark.parametrize(
    "argv",
    [
        ("--engine", "vllm", "--strategy", "op-split"),
        ("--engine", "llama.cpp", "--strategy", "all"),
        ("--engine", "exllamav3"),
        ("--engine", "llama.cpp", "--backend", "metal"),
        ("--engine", "llama.cpp", "--build-era", "1999"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(capsys, argv):
    assert main([*ASKED, *argv]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_engine_whose_speed_is_not_known_says_what_is(capsys):
    code, answer = run(capsys, "--engine", "ollama")
    assert code == 2 and "llama.cpp's kernels" in answer["error"]["remedy"]
