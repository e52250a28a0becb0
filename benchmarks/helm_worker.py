"""Runs tests of a GGUF file by Helm on request, in a process of its own.

    python -m benchmarks.helm_worker PLAN GGUF THREADS CONTEXT PIECE < requests > answers

PLAN is an all-CPU plan of GGUF; PIECE the longest prompt. Requests and answers are as of
`helmsman.engines.workers.llama_worker`, tests alone."""

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
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"loaded": True, "peak": peak}), flush=True)
        runner = BenchRunner(engine, piece)
        for line in sys.stdin:
            seconds = runner.seconds(Test(*json.loads(line)["test"]))
            print(json.dumps({"seconds": seconds, "done": True}), flush=True)


if __name__ == "__main__":
    main()
