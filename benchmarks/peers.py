"""Decode speed side by side with llama.cpp and transformers, in bf16, on this machine (all-CPU plan).

    python -m benchmarks.peers --model Qwen3-0.6B --checkpoint DIR --plan PLAN [--peer-python PYTHON]

`--peer-python` is an interpreter of another environment that has `llama-cpp-python` and `gguf`; without it
llama.cpp is left out. The same random weights go to every engine. Engines take turns (A B A B ...); the table
shows medians and the median of the pair-wise ratios, with the share of CPU time that other processes took."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

PROMPT, STEPS, ROUNDS = 16, 48, 7
THREADS = 2


def main() -> int:
    """Measure and print."""
    args = _arguments()
    engines = {"helm": _helm(args), "transformers": _transformers(args)}
    if args.peer_python:
        engines["llama.cpp"] = _llama(args)
    rates = _rounds(engines)
    print(f"{args.model} bf16, {THREADS} threads, {PROMPT} + {STEPS} tokens, {ROUNDS} rounds")
    for name, found in rates.items():
        ratio = median(ours / theirs for ours, theirs in zip(rates["helm"], found, strict=True))
        print(
            f"  {name:<14}{median(found):>8.2f} tokens/s  [{min(found):.2f} .. {max(found):.2f}]  helm is {ratio:.2f}x"
        )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen3-0.6B")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--plan", type=Path, required=True, help="an all-CPU plan of the model")
    parser.add_argument("--peer-python", type=Path)
    parser.add_argument("--gguf", type=Path, default=Path("demo/peer.gguf"))
    return parser.parse_args()


Engine = Callable[[], float]


def _rounds(engines: dict[str, Engine]) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(ROUNDS + 1):
        for name, run in engines.items():
            rate = run()
            if turn:
                rates[name].append(rate)
    return rates


def _prompt() -> np.ndarray:
    return np.asarray([[(37 * i) % 256 for i in range(PROMPT)]], np.int32)


def _helm(args: argparse.Namespace) -> Engine:
    from helmsman.executor.engine import Engine as Helm
    from helmsman.executor.machine import Machine
    from helmsman.schemas.plan import Plan
    from helmsman.schemas.read import read_document

    engine = Helm.load(read_document(Plan, args.plan), args.checkpoint, Machine.this())

    def run() -> float:
        done = engine.generate(_prompt(), STEPS + 1, ignore_eos=True)
        return STEPS / (done.moments[-1] - done.moments[1])

    return run


def _transformers(args: argparse.Namespace) -> Engine:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(THREADS)
    model = AutoModelForCausalLM.from_pretrained(args.checkpoint, dtype=torch.bfloat16).eval()
    prompt = torch.from_numpy(_prompt().astype(np.int64))

    @torch.inference_mode()
    def run() -> float:
        state = model(prompt, use_cache=True)
        start = time.monotonic()
        for _ in range(STEPS):
            token = state.logits[:, -1:].argmax(-1)
            state = model(token, past_key_values=state.past_key_values, use_cache=True)
        return STEPS / (time.monotonic() - start)

    return run


def _llama(args: argparse.Namespace) -> Engine:
    """A llama.cpp process that answers every line with its tokens/s."""
    worker = Path(__file__).with_name("llama_worker.py")
    command = [str(args.peer_python), str(worker), str(args.checkpoint), str(args.gguf), str(THREADS), str(STEPS)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    stdin, stdout = process.stdin, process.stdout

    def run() -> float:
        stdin.write(json.dumps(_prompt()[0].tolist()) + "\n")
        stdin.flush()
        return float(stdout.readline())

    return run


if __name__ == "__main__":
    sys.exit(main())
