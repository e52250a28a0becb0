"""Drives OpenVINO GenAI in an interpreter that has its package.

    python openvino_worker.py SETTINGS < requests > answers

SETTINGS is a JSON object: `model`, a GGUF file or a folder of OpenVINO's own, and of `threads` and `precision` (f32,
bf16) those that are not to be as the engine chooses. Requests and answers are as of `llama_worker`, tests alone."""

import json
import os
import resource
import sys
import time
from typing import Any


def main() -> None:
    """Load once, then run every test."""
    settings = json.loads(sys.argv[1])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer
    import openvino_genai

    options: dict[str, object] = {}
    if "threads" in settings:
        options["INFERENCE_NUM_THREADS"] = settings["threads"]
    if settings.get("precision"):
        options["INFERENCE_PRECISION_HINT"] = settings["precision"]
    model = openvino_genai.LLMPipeline(settings["model"], "CPU", **options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answer.write(json.dumps({"loaded": True, "peak": peak}) + "\n")
    answer.flush()
    for number, line in enumerate(sys.stdin):
        prompt, steps, depth = json.loads(line)["test"]
        seconds = test_seconds(model, prompt, steps, depth, number)
        answer.write(json.dumps({"seconds": seconds, "done": True}) + "\n")
        answer.flush()


def test_seconds(model: Any, prompt: int, steps: int, depth: int, number: int) -> float:
    """Return the seconds of a prompt, or of decode steps after a prompt of `depth` tokens. Token ids differ from test
    to test, so that no prefix cache helps."""
    import numpy as np
    import openvino
    import openvino_genai

    tokens = np.random.default_rng(number).integers(10, 200, (1, prompt or max(depth, 1)))
    inputs = openvino_genai.TokenizedInputs(
        openvino.Tensor(tokens.astype(np.int64)), openvino.Tensor(np.ones(tokens.shape, np.int64))
    )
    length = {"max_new_tokens": steps + 1, "min_new_tokens": steps + 1, "ignore_eos": True}
    config = openvino_genai.GenerationConfig(**length, do_sample=False)
    start = time.monotonic()
    result = model.generate(inputs, config)
    if prompt:
        return time.monotonic() - start
    return float(result.perf_metrics.get_tpot().mean / 1e3 * steps)


if __name__ == "__main__":
    main()
