"""Settings that people have: commands, tables, maps and files of engines, and what is refused of them."""

import json
from typing import Any

import pytest
from together import together

from helmsman.analysis.ask_settings import settings_of
from helmsman.library import plan, read_settings
from helmsman.planner.read_request import request_from
from helmsman.planner.settings.engine_format import ReadSettings, SettingsSubject
from helmsman.planner.settings.registry import engine_of, read_text
from helmsman.schemas.errors import UsageError

MODELFILE = '''# how I run it
# OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1 OLLAMA_NUM_PARALLEL=2 ollama serve
FROM ./model.gguf
PARAMETER num_ctx 8192
PARAMETER num_gpu 20
PARAMETER num_thread 6
PARAMETER temperature 0.7
PARAMETER stop "<|im_end|>"
TEMPLATE """{{ .System }}
PARAMETER nothing 3
"""
'''
FITTED = r'-c 4096 -ngl 49 -ot "blk\.(0|1)\.ffn_(up|down|gate_up|gate)_(ch|)exps=CPU"'
TABLE = "CUDA0 9216 384 310 \nHost 1200 0 20 \n"
PROPS = {"default_generation_settings": {"n_ctx": 4096, "params": {}}, "total_slots": 2, "model_path": "/m.gguf"}
MAP = {"model.embed_tokens": 0, "model.layers": "cpu", "model.norm": 0, "lm_head": 0}
BANDWIDTHS = {
    "gpu": {"name": "RTX 3080"},
    "dtype_kernels": {
        "nvfp4": {
            "cpu_moe_gbs": 63.8, "pcie_gather_gbs": 24.9, "cpu_moe_overlap_gbs": 54.0, "pcie_gather_overlap_gbs": 23.9,
        }
    },
}  # fmt: skip


def read(text: str, model: str = "Qwen3-14B", machine: Any = "rtx4060-laptop", kept: str = "q4_k") -> ReadSettings:
    question = {"model": model, "hardware": machine, "format": kept, "prompt_tokens": 64, "output_tokens": 8}
    request = request_from(question)
    subject = SettingsSubject(request.model, request.weights, request.formats, request.hardware, request.workload)
    return read_text(text, subject)


@together(
    ("text", "options", "context", "batch", "kv"),
    [
        ("llama-server -m x.gguf -ngl 20 -c 8192 -np 2 -ctk q8_0 -ctv q8_0", {"ngl": 20}, 4096, 2, "q8_0"),
        ("/opt/llama-server --n_gpu_layers all --ctx-size 4096", {"ngl": 41}, 4096, None, "f16"),
        ("CUDA_VISIBLE_DEVICES=0 ./main -ngl 999 -ub 128 -b 64", {"ngl": 41, "ubatch": 64}, None, None, "f16"),
        ("llama-server -c 4096", {"fit": True}, 4096, None, "f16"),
        ("llama-server --fit off", {"ngl": 41}, 40960, None, "f16"),
        ("llama-server --fit off -c 0 -np 2", {"ngl": 41}, 40960, 2, "f16"),
        ("llama-server -ngl 9 -c 0", {"ngl": 9}, None, None, "f16"),
        ("llama-server -fitt 512 -ngl auto", {"fit": True, "fit_target": 512}, None, None, "f16"),
        ("llama-server \\\n  -ngl 3 \\\n  -t 6", {"ngl": 3}, None, None, "f16"),
        (
            "-ngl 41 -ncffn 3 -ot 'blk\\.9\\.ffn_up\\.=CPU'",
            {"override_tensor": "blk\\.9\\.ffn_up\\.=CPU,blk\\.[0-2]\\.ffn_(gate|up|down)\\.=CPU"}, None, None, "f16",
        ),
        (MODELFILE, {"ngl": 20}, 8192, 2, "q8_0"),
        (json.dumps(PROPS), {"fit": True}, 4096, 2, "f16"),
        ('{"gpu": {"ratio": 0.5}, "contextLength": 4096}', {"ngl": 20}, 4096, None, "f16"),
        (
            '{"gpu": {"ratio": 1}, "contextLength": 8192, "maxParallelPredictions": 2, "physicalBatchSize": 256}',
            {"ngl": 41, "ubatch": 256}, 4096, 2, "f16",
        ),
        ("vllm serve m --kv-cache-dtype bfloat16 --swap-space 4", {"gpu_memory_utilization": 0.92}, None, None, "bf16"),
        ("sglang serve --model m --context-length 4Ki", {}, 4096, None, "f16"),
        ("sglang serve --kv-cache-dtype bf16 --cpu-offload-gb 3", {"cpu_offload_gb": 3.0}, None, None, "bf16"),
        (
            "vllm serve Qwen/Qwen3-14B --max-model-len 4k --cpu-offload-gb=4 --max-num-seqs 256 --port 80",
            {"cpu_offload_gb": 4.0}, 4000, None, "f16",
        ),
        (
            "python -m sglang.launch_server --model-path m --mem-fraction-static 0.8 --kv-cache-dtype fp8_e5m2",
            {"gpu_memory_utilization": 0.8}, None, None, "q8_0",
        ),
        (json.dumps(MAP), {"modules": "0,41-42"}, None, None, "f16"),
        ('{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "train_batch_size": 4}', {}, None, 4,
         "f16"),
    ],
)  # fmt: skip
def test_settings_are_a_question(text: str, options: dict[str, Any], context: Any, batch: Any, kv: Any) -> None:
    result = read(text)
    assert options.items() <= dict(result.options).items(), result.options
    assert (result.context, result.batch, result.kv) == (context, batch, kv)


@together(
    ("text", "strategy", "options"),
    [
        ("llama-server -ngl 99 -ncmoe 20", "llama-cpp", {"ngl": 49, "n_cpu_moe": 20}),
        ("llama-server -cmoe", "llama-cpp", {"ngl": 49, "cpu_moe": True}),
        (FITTED, "llama-cpp", {"ngl": 49, "override_tensor": r"blk\.(0|1)\.ffn_(up|down|gate_up|gate)_(ch|)exps=CPU"}),
        (TABLE, "llama-cpp", {"ngl": 49, "n_cpu_moe": 22}),
        (json.dumps(BANDWIDTHS), "freetoken", {"miss_mode": "hybrid", "fetched_share": 0.3068}),
        (json.dumps({**BANDWIDTHS, "dtypes": {"nvfp4": "offload"}}), "freetoken", {"miss_mode": "offload"}),
        (
            "ft serve --model m --moe-strategy cpu --moe-cache-size 960",
            "freetoken", {"miss_mode": "cpu", "expert_slots": 20},
        ),
        (
            "python -m sglang.launch_server --model m --kt-gpu-experts-ratio 0.25 --kt-cpuinfer 8",
            "ktransformers", {"gpu_experts": 32, "threads": 8},
        ),
        ("ft serve --model m --moe-strategy hybrid --moe-cpu-threads 8", "freetoken", {"threads": 8}),
        ("python chat.py -m d -mcl 8..10 -cs 8192", "llama-cpp", {"ngl": 49}),
        ("python chat.py -m d -mode raw -mcl 20 -cs 8192", "llama-cpp", {"ngl": 49, "n_cpu_moe": 20}),
        ("python chat.py -m d -mcs 28 -cs 8192", "ktransformers", {"gpu_experts": 100}),
    ],
)  # fmt: skip
def test_settings_of_experts(text: str, strategy: str, options: dict[str, Any]) -> None:
    result = read(text, "Qwen3-30B-A3B", "rtx4080-14700k")
    assert result.strategy == strategy and options.items() <= dict(result.options).items(), result.options


@together(
    ("text", "words"),
    [
        ("", "no settings"),
        ("llama-server --ngpu 3", "--ngpu is no flag"),
        ("llama-server -ngl", "takes a value"),
        ("llama-server -ngl many", "not a number"),
        ("llama-server -ctk q3_k", "no format of llama.cpp's caches"),
        ("llama-server -sm row", "not predicted"),
        ("llama-server 'unfinished", "no closing quotation"),
        ("llama-bench -ngl 3", "llama-bench is no program"),
        ("LLAMA_ARG_N_GPU_LAYERS=3 llama-server", "from outside"),
        ("vllm serve m --pipeline-parallel-size 2", "not predicted here"),
        ("vllm serve m --max-modellen 4", "--max-modellen is no flag"),
        ("vllm serve m --max-model-len 4Ki", "not a length"),
        ("sglang serve --model m --context-length 0", "not a length"),
        ("FROM x\nPARAMETER num_gpus 3", "no parameter of Ollama"),
        ("FROM x\nPARAMETER tfs_z 1", "no parameter of Ollama"),
        ("sglang serve --model m --cpu-offload-gb 3.5", "not a number"),
        ('{"zero_optimization": {"stage": 3, "offload_param": {"devices": "cpu"}}}', "no key"),
        ("FROM x\nPARAMETERS num_gpu 3", "no instruction"),
        ('{"contextLength": 4, "layers": 3}', "no key"),
        ('{"model.layers.0": 0}', "no place for"),
        ('{"": 1}', "not predicted"),
        ('{"zero_optimization": {"stage": 2}}', "stage 3"),
        ("CUDA0 100 1 1\nCUDA1 100 1 1\nHost 0 0 0\n", "2 devices"),
        ("{", "no JSON"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read(text)
    assert caught.value.field == "settings" and caught.value.remedy


def test_flags_without_effect_are_told() -> None:
    result = read("llama-server -ngl 3 --port 8080 --jinja -t 3 -fa on --temp 0.7 --mlock -lm mmap")
    assert result.idle == ("--port 8080", "--jinja", "--temp 0.7")
    assert result.unpriced == ("--mlock",) and result.placed == ("-ngl 3", "-t 3")


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("-ngl 3", "llama.cpp"), ("vllm serve x", "vllm"), ("ft serve --model x", "freetoken"),
        ("python3 -m sglang.launch_server --model x", "sglang"),
        ("sglang serve --kt-num-gpu-experts 3", "ktransformers"),
        ("python eval.py -m d -mcl 3 -cs 9", "exllamav3"), (MODELFILE, "ollama"), ('{"": "cpu"}', "accelerate"),
    ],
)  # fmt: skip
def test_engines_are_known_by_their_settings(text: str, engine: str) -> None:
    assert engine_of(text) == engine


def test_first_layers_of_exllamav3_are_those_with_experts() -> None:
    """The first block of this model has no experts: two layers of them are in the blocks 1 and 2."""
    assert read("python chat.py -m d -mcl 2 -cs 8192", "DeepSeek-V2-Lite").options["n_cpu_moe"] == 3


@together(
    ("text", "placed", "unpriced", "idle"),
    [
        ("sglang serve --model m --kt-num-gpu-experts 8 --kt-cpuinfer 4", True, False, False),
        ("sglang serve --model m --kt-num-gpu-experts 8 --kt-cpuinfer 20", False, False, False),
        ("sglang serve --model m --kt-num-gpu-experts 8 --kt-cpuinfer 64", False, True, False),
        ("ft serve --model m --moe-strategy cpu --moe-cpu-threads 4", True, False, False),
        ("ft serve --model m --moe-strategy cpu --moe-cpu-threads 64", False, True, False),
        ("ft serve --model m --moe-strategy offload --moe-cpu-threads 4", False, False, True),
    ],
)
def test_threads_of_experts(text: str, placed: bool, unpriced: bool, idle: bool) -> None:
    """Fewer than the 20 cores are priced, all of them are the prediction's own, more are not known."""
    flag = " ".join(text.split()[-2:])
    result = read(text, "Qwen3-30B-A3B", "rtx4080-14700k")
    assert [flag in part for part in (result.placed, result.unpriced, result.idle)] == [placed, unpriced, idle]
    assert ("threads" in result.options) == placed


@together(
    ("engine", "options"),
    [("ktransformers", {"gpu_experts": 32}), ("freetoken", {"miss_mode": "hybrid", "expert_slots": 20})],
)
def test_fewer_threads_are_slower_and_come_back(engine: str, options: dict[str, Any]) -> None:
    question = {"model": "Qwen3-30B-A3B", "hardware": "rtx4080-14700k", "format": "q4_k", "strategy": engine}
    whole = plan({**question, "options": options}).plan
    few = plan({**question, "options": {**options, "threads": 2}}).plan
    assert few.predicted.decode.seconds.mid > 1.3 * whole.predicted.decode.seconds.mid
    text = settings_of(few, engine).text
    assert read(text, "Qwen3-30B-A3B", "rtx4080-14700k").options["threads"] == 2


def test_accelerators_that_divide_layers_come_back() -> None:
    """Two cards hold twice as many experts as one does, and read twice as fast."""
    hardware = {"gpu": "2x RTX 4080", "cpu": "AMD EPYC 9355", "ram": 384 * 2**30}
    question = {"model": "Qwen3-30B-A3B", "hardware": hardware, "format": "q8_0", "strategy": "ktransformers"}
    one, two = (plan({**question, "options": {"tensor_parallel_size": count}}).plan for count in (1, 2))
    assert two.predicted.decode.seconds.mid < one.predicted.decode.seconds.mid and " 2x " in two.label
    text = settings_of(two, "ktransformers").text
    reading = read(text, "Qwen3-30B-A3B", hardware)
    assert "--tp-size 2" in text and reading.options["tensor_parallel_size"] == 2
    assert not any("--tp-size" in part for part in reading.unpriced)
    with pytest.raises(UsageError, match="not a number of cards"):
        plan({**question, "options": {"tensor_parallel_size": 0}})


@pytest.mark.parametrize(("strategy", "same"), [("vllm", True), ("layer-split", True), ("llama-cpp", False)])
def test_plans_beside_quantised_settings_are_as_quantised_or_named(strategy: str, same: bool) -> None:
    machine = {"gpu": "2x RTX 4090", "cpu": "AMD EPYC 7742", "ram": 64 * 2**30}
    question = {"model": "Qwen3-8B", "hardware": machine, "strategy": strategy, "prompt_tokens": 64, "output_tokens": 8}
    said = read_settings("vllm serve m --quantization fp8 --max-model-len 1024", question)
    assert said.because.startswith("weights are in fp8 instead of f16, and ") is not same
    weights = [sum(use.weights for use in plan.memory) for plan in (said.yours, said.best)]
    assert (weights[1] < 1.1 * weights[0]) is same
