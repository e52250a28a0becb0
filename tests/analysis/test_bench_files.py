"""Results of llama-bench, vLLM and AIPerf as runs, and runs of another machine or model, which are refused."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from helmsman.analysis.bench_files.measured_run import MeasuredRun, RefusedResult
from helmsman.analysis.bench_files.read import read_results
from helmsman.analysis.bench_files.run_requests import CalibrationSubject, request_of_run
from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.errors import BadInputError, UsageError

ROW = {
    "build_commit": "9c35706", "build_number": 6060, "cpu_info": "AMD Ryzen 9 5950X 16-Core Processor",
    "gpu_info": "NVIDIA GeForce RTX 3090", "backends": "CUDA", "model_filename": "models/Qwen3-8B-Q4_K_M.gguf",
    "model_type": "qwen3 8B Q4_K - Medium", "model_n_params": 8190735360, "n_ubatch": 512, "type_k": "f16",
    "type_v": "f16", "n_gpu_layers": 99, "split_mode": "layer", "no_kv_offload": False, "flash_attn": True,
    "n_prompt": 0, "n_gen": 128, "n_depth": 0, "test_time": "2025-08-01T10:00:00Z", "avg_ts": 120.0, "stddev_ts": 1.2,
}  # fmt: skip
PROMPT = {**ROW, "n_prompt": 512, "n_gen": 0, "n_depth": 4096, "avg_ts": 3000.0, "flash_attn": False}
SUBJECT = CalibrationSubject(compose("RTX 3090", "AMD Ryzen 9 5950X", 64 * GIB, None), "llama.cpp")


def read(tmp_path: Path, text: str) -> list[MeasuredRun | RefusedResult]:
    (tmp_path / "result").write_text(text)
    return list(read_results(tmp_path / "result"))


def as_csv(rows: list[dict[str, Any]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(ROW))
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


@pytest.mark.parametrize(
    "form", [json.dumps, lambda rows: "\n".join(map(json.dumps, rows)), as_csv], ids=["json", "jsonl", "csv"]
)
def test_llama_bench_says_the_same_in_every_form(form: Any, tmp_path: Path) -> None:
    step, prompt = read(tmp_path, form([ROW, PROMPT]))
    assert isinstance(step, MeasuredRun) and isinstance(prompt, MeasuredRun)
    assert (step.of, step.value, step.prompt, step.output, step.noise) == ("decode", 120.0, 1, 128, 0.01)
    assert (step.model, step.format, step.era, step.whole) == ("Qwen3-8B-Q4_K_M", "q4_k_m", "2025", True)
    assert step.options == {"ngl": 99, "backend": "cuda", "ubatch": 512, "flash_attn": "on"}
    assert (prompt.of, prompt.prompt, prompt.prefix, prompt.options["flash_attn"]) == ("prefill", 4608, 4096, "off")


def test_llama_bench_in_its_table_names_no_machine(tmp_path: Path) -> None:
    text = (
        "ggml_cuda_init: found 1 CUDA devices\n"
        "| model | size | params | backend | ngl | fa | test | t/s |\n"
        "| --- | ---: | ---: | --- | --: | -: | --: | --: |\n"
        "| qwen3 8B Q8_0 | 8.1 GiB | 8.19 B | CUDA | 20 | 1 | tg128 @ d512 | 30.00 ± 0.30 |\n\nbuild: 9c35706 (6060)\n"
    )
    (run,) = read(tmp_path, text)
    assert isinstance(run, MeasuredRun) and run.gpus == () and run.model is None
    assert (run.of, run.value, run.prompt, run.output, run.format) == ("decode", 30.0, 512, 128, "q8_0")
    assert run.options["ngl"] == 20 and not run.whole


def test_whole_requests_and_what_is_not_planned(tmp_path: Path) -> None:
    rows = [{**ROW, "n_prompt": 512, "avg_ts": 640.0}, {**ROW, "split_mode": "row"}, {**ROW, "type_v": "q8_0"}]
    whole, *refused = read(tmp_path, json.dumps(rows))
    assert isinstance(whole, MeasuredRun) and (whole.of, whole.value) == ("request", 1.0)
    assert all(isinstance(row, RefusedResult) for row in refused)


def test_vllm_and_aiperf_say_steps_and_the_prompt_of_single_requests(tmp_path: Path) -> None:
    served = {"model_id": "Qwen/Qwen3-8B", "max_concurrency": 1, "completed": 10, "total_input_tokens": 5120,
              "total_output_tokens": 1280, "median_tpot_ms": 10.0, "median_ttft_ms": 100.0,
              "request_rate": "inf"}  # fmt: skip
    step, prompt = read(tmp_path, json.dumps(served))
    assert isinstance(step, MeasuredRun) and isinstance(prompt, MeasuredRun)
    assert (step.value, step.prompt, step.output, step.model) == (100.0, 512, 128, "Qwen/Qwen3-8B")
    assert prompt.value == pytest.approx(5120.0)
    many, refused = read(tmp_path, json.dumps({**served, "max_concurrency": 4}))
    assert isinstance(many, MeasuredRun) and many.value == 400.0 and isinstance(refused, RefusedResult)
    (latency,) = read(tmp_path, json.dumps({"avg_latency": 2.0, "std_latency": 0.1, "latencies": [2.0]}))
    assert isinstance(latency, MeasuredRun) and (latency.of, latency.noise) == ("request", 0.05)
    metrics = {"inter_token_latency": 10.0, "time_to_first_token": 100.0, "input_sequence_length": 512.0,
               "output_sequence_length": 128.0}  # fmt: skip
    told = {name: {"unit": "ms", "avg": value} for name, value in metrics.items()}
    settings = {"endpoint": {"model_names": ["Qwen/Qwen3-8B"]}, "loadgen": {"concurrency": 1}}
    values = [
        run.value
        for run in read(tmp_path, json.dumps({**told, "input_config": settings}))
        if isinstance(run, MeasuredRun)
    ]
    assert values == pytest.approx([100.0, 5120.0])
    assert isinstance(read(tmp_path, json.dumps(told))[0], RefusedResult)


def test_rows_of_another_machine_or_model_are_refused_by_name(tmp_path: Path) -> None:
    (run,) = read(tmp_path, json.dumps([ROW]))
    assert isinstance(run, MeasuredRun)
    request = request_of_run(run, SUBJECT)
    assert (request.model.name, request.weights, request.options.ngl) == ("Qwen3-8B", "q4_k", 99)
    other = CalibrationSubject(compose("RTX 4090", "AMD Ryzen 9 5950X", 64 * GIB, None), "llama.cpp")
    with pytest.raises(UsageError, match="ran on NVIDIA GeForce RTX 3090"):
        request_of_run(run, other)
    with pytest.raises(UsageError, match="of Qwen3-8B, and not of Qwen3-14B"):
        request_of_run(run, CalibrationSubject(SUBJECT.hardware, "llama.cpp", load_model("Qwen3-14B")))
    part = {**ROW, "n_gpu_layers": 20, "cpu_info": "Intel(R) Core(TM) i7-13700H"}
    (beside,) = read(tmp_path, json.dumps([part]))
    assert isinstance(beside, MeasuredRun)
    with pytest.raises(UsageError, match="i7-13700H"):
        request_of_run(beside, SUBJECT)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "INSERT INTO test (x) VALUES (1);", '[{"avg_ts": "fast", "n_gen": 1}]']
)
def test_what_is_no_result_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        read(tmp_path, text)
