"""Runs tests of a GGUF file by Helm on request, in a process of its own.

    python -m benchmarks.helm_worker PLAN GGUF THREADS CONTEXT PIECE < tests > answers

PLAN is an all-CPU plan of GGUF; PIECE the longest prompt. The first answer is the peak of resident memory once the
model is loaded, in bytes; then for every line ({"prompt", "steps", "depth"}) its seconds."""

import json
import resource
import sys
from pathlib import Path

from benchmarks.peers import plan_at
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.bench import BenchRunner, Test
from helmsman.executor.system.machine import Machine
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document


def main() -> None:
    """Load once, then run every test."""
    place = Path(sys.argv[2])
    threads, context, piece = map(int, sys.argv[3:6])
    plan = plan_at(read_document(Plan, Path(sys.argv[1])), threads, context)
    with Engine.load(plan, place, Machine.this(), prompt_tokens=piece) as engine:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)
        runner = BenchRunner(engine, piece)
        for line in sys.stdin:
            print(runner.seconds(Test(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
