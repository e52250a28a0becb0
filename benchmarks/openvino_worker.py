"""Runs in the peer's environment: it times a model in OpenVINO GenAI on request.

python openvino_worker.py PLACE THREADS CONTEXT PRECISION < tests ({"prompt", "steps", "depth"} a line) > seconds a line

PLACE is a GGUF file or a directory of OpenVINO's own; PRECISION f32, bf16 or nothing, for what the engine chooses."""

import json
import os
import sys
import time


def main() -> None:
    """Load once, then run every test."""
    path, threads, _, precision = sys.argv[1:5]
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import openvino_genai

    options = {"INFERENCE_NUM_THREADS": int(threads)}
    if precision:
        options["INFERENCE_PRECISION_HINT"] = precision
    model = openvino_genai.LLMPipeline(path, "CPU", **options)
    for number, line in enumerate(sys.stdin):
        test = json.loads(line)
        answer.write(f"{seconds(model, test['prompt'], test['steps'], test['depth'], number)}\n")
        answer.flush()


def seconds(model, prompt: int, steps: int, depth: int, number: int) -> float:
    """Return the seconds of a prompt, or of decode steps after a prompt of `depth` tokens. Token ids differ from
    test to test, so that no prefix cache helps."""
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
    return result.perf_metrics.get_tpot().mean / 1e3 * steps


if __name__ == "__main__":
    main()
