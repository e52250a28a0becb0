"""Runs in the peer's environment: tests of a GGUF file by llama.cpp on request.

python llama_worker.py GGUF THREADS CONTEXT FLASH < tests ({"prompt", "steps", "depth"} a line) > seconds a line"""

import ctypes
import json
import os
import struct
import sys
import time

COMPUTED = 256
"""Tokens of a deep cache whose keys and values are computed; those after them repeat these."""


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
    """Keep `depth` tokens in the cache, and no more; they are computed again where it does not end earlier as it is
    told to: states of recurrent layers are those after the last token."""
    if model.n_tokens >= depth and model._ctx.kv_cache_seq_rm(-1, depth, -1):
        model.n_tokens = depth
        return
    model.reset()
    compute(model, min(depth, COMPUTED))
    if depth > COMPUTED and not deepen(model, depth):
        model.reset()
        compute(model, depth)
    model.n_tokens = depth


def compute(model, depth: int) -> None:
    """Evaluate `depth` tokens after none."""
    if depth:
        model.eval([token % 256 for token in range(depth)])


def deepen(model, depth: int) -> bool:
    """Give the cache `depth` tokens that repeat those it has; return whether llama.cpp took them.

    Computing 16,384 with flash attention takes hours here, and no step's time depends on what the values are. Only
    caches of one kind, all of whose layers keep every token, are written as `repeated` reads them."""
    from llama_cpp import llama_state_seq_get_data, llama_state_seq_get_size, llama_state_seq_set_data

    context = model._ctx.ctx
    state = (ctypes.c_uint8 * llama_state_seq_get_size(context, 0))()
    llama_state_seq_get_data(context, state, len(state), 0)
    try:
        deep = repeated(memoryview(state).cast("B"), depth)
    except (struct.error, MemoryError):
        return False
    return llama_state_seq_set_data(context, (ctypes.c_uint8 * len(deep)).from_buffer(deep), len(deep), 0) == len(deep)


def repeated(state: memoryview, depth: int) -> bytearray:
    """A sequence's state as llama.cpp writes it (llama-kv-cache.cpp, state_write), with `depth` cells."""
    magic, sequence, streams, cells = struct.unpack_from("<IiII", state)
    deep = bytearray(struct.pack("<IiII", magic, sequence, streams, depth))
    for position in range(depth):
        deep += struct.pack("<iIi", position, 1, 0)
    at = 16 + 12 * cells
    transposed, layers = struct.unpack_from("<II", state, at)
    deep += state[at : at + 8]
    at += 8
    for values in (False,) * layers + (True,) * layers:
        if values and transposed:
            size, count = struct.unpack_from("<II", state, at + 4)
        else:
            size, count = struct.unpack_from("<Q", state, at + 4)[0], 1
        deep += state[at : at + 12]
        at += 12
        for _ in range(count):
            row = bytes(state[at : at + size * cells])
            deep += (row * (depth // cells + 1))[: size * depth]
            at += size * cells
    return deep


if __name__ == "__main__":
    main()
