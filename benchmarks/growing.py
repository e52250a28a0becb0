"""The plain growing cache (HELM-68, 91) beside one that is allocated in full, and pages beside both: decode rates.

python -m benchmarks.growing PLAN CHECKPOINT [--paged PLAN] [--tokens N] [--pairs N]

Kinds take turns in one process; ratios are of neighbours. HELM prints a loss of 53-62 % at 256 tokens (E-HELM-26)."""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np

from helmsman.executor.engine import Engine
from helmsman.executor.machine import Machine
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document

ASIDE = 3
"""Least id of a token of the prompt, after those that end sequences."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--paged", type=Path, metavar="PLAN", help="the same question with --kv-window")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args(argv)
    plans = {"contiguous": (args.plan, False), "growing": (args.plan, True)}
    if args.paged:
        plans["paged"] = (args.paged, False)
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(
                Engine.load(read_document(Plan, place), args.checkpoint, Machine.this(), growing=grows)
            )
            for name, (place, grows) in plans.items()
        }
        rates = [{name: rate(engine, args.tokens) for name, engine in engines.items()} for _ in range(args.pairs)]
    for name in plans:
        print(line(name, rates))
    return 0


def rate(engine: Engine, tokens: int) -> float:
    """Decoded tokens/s of a run that begins with empty caches."""
    work = engine.plan.workload
    shape = work.batch, work.prompt_tokens
    prompt = np.random.default_rng(0).integers(ASIDE, engine.plan.model.vocab, shape, dtype=np.int32)
    found = engine.generate(prompt, tokens, ignore_eos=True).tokens_per_second
    assert found is not None, "--tokens is at least 2"
    return found


def line(name: str, rates: Sequence[Mapping[str, float]]) -> str:
    """Median tokens/s, and the median and the spread of what it is of the contiguous cache's in the same round."""
    shares = sorted(each[name] / each["contiguous"] for each in rates)
    spread = f"{median(shares):.3f} [{shares[0]:.3f} .. {shares[-1]:.3f}]"
    return f"{name:10s} {median(each[name] for each in rates):8.2f} tokens/s  {spread} of contiguous"


if __name__ == "__main__":
    raise SystemExit(main())
