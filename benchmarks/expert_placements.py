"""Is `expert-split` ever slower than what people do without a search? Over models with experts and machines of the
catalogue, prompts and answers:

    python -m benchmarks.expert_placements [--questions 100] [--seed 1]

Rivals, all priced with the same software: llama.cpp with every --n-cpu-moe N (the best one counts), whole layers on
either device at the best number, FreeToken's cache in its three modes, ktransformers with as many experts as fit.
Prints the questions on which a rival is faster, by how much, and how often each is the fastest rival. Exit code 4 where
one is faster by more than 1 %."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random

from helmsman.hwdb.load_hardware import system_names
from helmsman.hwdb.load_model import load_model
from helmsman.planner.decide import decide
from helmsman.planner.read_request import request_from
from helmsman.schemas.errors import HelmError

MODELS = (
    "Qwen3-30B-A3B",
    "Qwen3.5-35B-A3B",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "GLM-4.5-Air",
    "Mixtral-8x7B-v0.1",
    "DeepSeek-V2-Lite",
    "OLMoE-1B-7B-0924",
)
FORMATS = ("q4_0", "q8_0")
LENGTHS = ((128, 128), (2048, 256), (32, 512), (4096, 16))
TOLERANCE = 1.01


def seconds(question: dict[str, object], strategy: str, **options: object) -> float | None:
    """Return the predicted seconds of a request; None where a strategy has no plan."""
    shared = {} if strategy in ("expert-split", "layer-split") else {"same_software": True}
    try:
        return decide(request_from({**question, "strategy": strategy, "options": {**shared, **options}})).seconds
    except HelmError:
        return None


def rivals(question: dict[str, object], layers: int) -> Iterator[tuple[str, float | None]]:
    """Yield what people do without a search, and its seconds."""
    fewest = (seconds(question, "llama-cpp", n_cpu_moe=count) for count in range(layers + 1))
    yield "llama-cpp --n-cpu-moe", min((one for one in fewest if one is not None), default=None)
    yield "layer-split", seconds(question, "layer-split")
    yield "ktransformers", seconds(question, "ktransformers")
    for mode in ("offload", "cpu", "hybrid"):
        yield f"freetoken {mode}", seconds(question, "freetoken", miss_mode=mode)


def main() -> int:
    """Ask the questions and print what a rival does faster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random, machines = Random(args.seed), system_names()
    fastest, slower, answered = Counter[str](), 0, 0
    while answered < args.questions:
        prompt, output = random.choice(LENGTHS)
        question: dict[str, object] = {
            "model": random.choice(MODELS),
            "hardware": random.choice(machines),
            "format": random.choice(FORMATS),
            "prompt_tokens": prompt,
            "output_tokens": output,
        }
        ours = seconds(question, "expert-split")
        if ours is None:
            continue
        answered += 1
        layers = load_model(str(question["model"])).layers
        known = [(taken, name) for name, taken in rivals(question, layers) if taken is not None]
        if not known:
            continue
        best, name = min(known)
        fastest[name] += 1
        if ours > best * TOLERANCE:
            slower += 1
            print(f"{question}: {name} {best:.4g} s, expert-split {ours:.4g} s ({ours / best - 1:+.1%})")
    print(f"{answered} questions, {slower} with a faster rival; fastest rivals {dict(fastest)}")
    return 4 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
