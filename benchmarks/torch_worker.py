"""Runs in the peer's environment: it times a model in PyTorch (transformers, eager) on request.

    python torch_worker.py SETTINGS < requests > answers

SETTINGS is a JSON object: `model`, a Hugging Face directory, `threads`, and `precision`, f32, bf16 or nothing, for the
model's own. Requests and answers are as of `helmsman.engines.workers.llama_worker`, tests alone."""

import json
import os
import sys
import time


def main() -> None:
    """Load once, then run every test."""
    settings = json.loads(sys.argv[1])
    sys.path.pop(0)  # this folder, whose kernels.py is not the package that transformers looks for
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(settings["threads"])
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "": "auto"}[settings["precision"]]
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=dtype, local_files_only=True).eval()
    answer.write(json.dumps({"loaded": True, "peak": 0}) + "\n")
    answer.flush()
    with torch.inference_mode():
        for line in sys.stdin:
            taken = seconds(model, *json.loads(line)["test"])
            answer.write(json.dumps({"seconds": taken, "done": True}) + "\n")
            answer.flush()


def seconds(model, prompt: int, steps: int, depth: int) -> float:
    """Return the seconds of a prompt, whose last token alone yields logits, or of decode steps after `depth` tokens."""
    import torch
    from transformers import DynamicCache

    cache = DynamicCache()
    if not prompt:
        model(torch.randint(256, (1, max(depth, 1))), past_key_values=cache, logits_to_keep=1)
    start = time.monotonic()
    if prompt:
        model(torch.randint(256, (1, prompt)), past_key_values=cache, logits_to_keep=1)
    for _ in range(steps):
        model(torch.randint(256, (1, 1)), past_key_values=cache)
    return time.monotonic() - start


if __name__ == "__main__":
    main()
