"""Speeds beside another engine in one run: the same model, the same tests, engines in turns.

    python -m benchmarks.peers PLACE --plan PLAN --peer-python PYTHON
        [--peer llama.cpp|openvino|torch] [--peer-model PLACE] [--peer-precision f32|bf16]
        [-p 128,1024] [-n 48] [-d 0,4096] [--threads 1,2] [--pairs 5] [--json FILE]

PLAN is an all-CPU plan of PLACE (`helm-plan --model PLACE --hw this`), a GGUF file or a directory; `--peer-python` is
an interpreter of another environment that has `llama-cpp-python`, `openvino-genai` or `torch` and `transformers`;
`--peer-model`: what that engine reads, where it is not PLACE; `--peer-precision`: what it is told to compute in, where
not what it chooses (torch: the model's own). With `-n 0` prompts alone. llama.cpp runs with flash attention (its own
default) and without, and with weights as they are stored, not repacked: its fastest setting is the one to quote. No
engine computes what is cached at a depth, but OpenVINO, which has to. Decode steps are also compared with a plain read
of the bytes that they stream, weights and KV. A figure is not to be quoted when others took more than 8 % of the CPU
time; the peer's own count among them."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.comparison import Row, Side, compare
from benchmarks.kernel_bench import open_bench
from benchmarks.machine import print_machine
from benchmarks.rows import show
from helmsman.engines.engine_process import EngineProcess, engine_process, worker_command
from helmsman.engines.programs import DrivenName, EngineProgram
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.bench import BenchRunner, Test, longest_prompt, tests_of
from helmsman.executor.system.machine import Machine
from helmsman.lowering.lower import lower
from helmsman.scheduler.iteration import decode
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document

Settings = dict[str, object]
"""Settings of a worker."""

PEERS = ("llama.cpp", "openvino", "torch")
ENGINES: dict[str, DrivenName] = {"llama.cpp": "llama.cpp", "openvino": "openvino-genai"}
"""Peers that Helm's users can compare as well (`helm-bench --engine`)."""


def main() -> int:
    """Measure and print."""
    args = _arguments()
    print_machine()
    show((row for threads in args.threads for row in _rows(args, threads)), args.json)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--peer-python", type=Path, required=True)
    parser.add_argument("--peer", choices=PEERS, default="llama.cpp")
    parser.add_argument("--peer-model", type=Path)
    parser.add_argument("--peer-precision", choices=("f32", "bf16"))
    parser.add_argument("-p", "--prompts", type=_counts, default=(128,))
    parser.add_argument("-n", "--steps", type=int, default=48)
    parser.add_argument("-d", "--depths", type=_counts, default=(0,))
    parser.add_argument("--threads", type=_counts, default=(2,))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _rows(args: argparse.Namespace, threads: int) -> Iterator[Row]:
    """Prompts at depth 0, decode steps at every depth."""
    steps = tests_of((), (args.steps,), args.depths) if args.steps else ()
    tests = (*tests_of(args.prompts, (), (0,)), *steps)
    context = max(test.context for test in tests)
    plan = plan_at(read_document(Plan, args.plan), threads, context)
    piece = longest_prompt(tests, fills=False)
    with Engine.load(plan, args.place, Machine.this(), prompt_tokens=piece) as engine:
        runner = BenchRunner(engine, piece)
        yield from _against_reads(runner, plan, [test for test in tests if test.steps], threads, args.pairs)
        for name, settings in _settings(args).items():
            command = _command(args, {"threads": threads, "context": context, **settings})
            with engine_process(command, name) as peer:
                for test in tests:
                    yield _compared(runner, name, peer, test, threads, args.pairs)


def _settings(args: argparse.Namespace) -> dict[str, Settings]:
    """Return the settings of the peer's worker by the name of each configuration: llama.cpp with flash attention (its
    own default) and without, and with weights as they are stored."""
    if args.peer != "llama.cpp":
        return {args.peer: {"precision": args.peer_precision or ""}}
    return {
        "llama.cpp": {"flash": "off"},
        "llama.cpp fa": {"flash": "on"},
        "llama.cpp as stored": {"flash": "off", "repack": False},
    }


def _compared(runner: BenchRunner, name: str, peer: EngineProcess, test: Test, threads: int, pairs: int) -> Row:
    tokens = test.prompt or test.steps
    ours = Side(f"helm {test.name}", tokens, lambda: runner.seconds(test))
    theirs = Side(name, tokens, lambda: peer.seconds(test.prompt, test.steps, test.depth))
    ours.seconds()
    theirs.seconds()
    return compare(ours, theirs, threads, "tokens/s", pairs)


def _against_reads(runner: BenchRunner, plan: Plan, tests: Sequence[Test], threads: int, pairs: int) -> Iterator[Row]:
    """Decode steps beside reads, in GB/s."""
    bench = open_bench(pairs)
    for test in tests:
        gigabytes = streamed(plan, test) / 1e9
        ours = Side(f"helm {test.name}", gigabytes, partial(runner.seconds, test))
        ours.seconds()
        yield bench.against_read(ours, threads)


def streamed(plan: Plan, test: Test) -> int:
    """Bytes of weights and KV that the test's steps read: as many a step as in its middle."""
    middle = decode(plan.workload, max(test.depth, 1) + test.steps // 2)
    return test.steps * sum(task.bytes for task in lower(plan, middle).tasks)


def plan_at(plan: Plan, threads: int, context: int) -> Plan:
    """Return the plan with so many threads and room for `context` tokens. Ends the program where the plan computes on
    another device than the machine's first, whose threads it cannot choose."""
    first = plan.hardware.devices[0].name
    if any(rule.device != first for rule in plan.compute):
        sys.exit(f"--plan: computes beside {first}; plan on a record without an accelerator")
    workload = plan.workload.model_copy(update={"context": context, "prompt_tokens": 1, "output_tokens": 1})
    schedule = plan.schedule.model_copy(update={"threads": threads})
    return plan.model_copy(update={"workload": workload, "schedule": schedule})


def _command(args: argparse.Namespace, settings: Settings) -> list[str]:
    """Return the words that start the peer with settings of its own beside its model."""
    settings = {"model": str((args.peer_model or args.place).absolute()), **settings}
    if args.peer == "torch":
        return [str(args.peer_python), str(Path(__file__).with_name("torch_worker.py")), json.dumps(settings)]
    return worker_command(EngineProgram(ENGINES[args.peer], "package", str(args.peer_python)), settings)


if __name__ == "__main__":
    sys.exit(main())
