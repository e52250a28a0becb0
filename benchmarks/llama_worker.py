"""Runs in the peer's environment: tests of a GGUF file by llama.cpp on request.

python llama_worker.py GGUF THREADS CONTEXT FLASH < tests ({"prompt", "steps", "depth"} a line) > seconds a line"""

import json
import os
import sys
import time


def main() -> None:
    """Load once, then run every test."""
    path, threads, context, flash = sys.argv[1], *map(int, sys.argv[2:5])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from llama_cpp import Llama

    model = Llama(
        path, n_ctx=context, n_threads=threads, n_threads_batch=threads, flash_attn=bool(flash), verbose=False
    )
    for line in sys.stdin:
        test = json.loads(line)
        answer.write(f"{seconds(model, test['prompt'], test['steps'], test['depth'])}\n")
        answer.flush()


def seconds(model, prompt: int, steps: int, depth: int) -> float:
    """Of a prompt, or of decode steps on top of `depth` tokens, which are computed once."""
    fill(model, 0 if prompt else max(depth, 1))
    start = time.monotonic()
    if prompt:
        model.eval([token % 256 for token in range(prompt)])
    for step in range(steps):
        model.eval([step % 256])
    return time.monotonic() - start


def fill(model, depth: int) -> None:
    """Keep the first `depth` tokens in the cache, and no more."""
    if model.n_tokens < depth:
        model.eval([token % 256 for token in range(model.n_tokens, depth)])
    model.n_tokens = depth
    model._ctx.kv_cache_seq_rm(-1, depth, -1)


if __name__ == "__main__":
    main()
