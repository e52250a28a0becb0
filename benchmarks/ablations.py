"""HELM's ablations on this machine: one thing is switched, everything else stays (HELM-79 to 82).

    python -m benchmarks.ablations --checkpoint DIR --cpu-record FILE --record FILE [--ram-avail 800MB]
        [--format f16] [--steps 32] [--depth 2048] [--window 1024] [--pairs 5] [--json FILE]

- kernels: an all-CPU plan on FILE of `--cpu-record`, by the widest instruction set beside each lower one, and beside
  PyTorch's own products (`--backend torch`), which is what HELM does without its kernel;
- caches: a layer split on FILE of `--record` (with a loopback accelerator), caches allocated in full beside those that
  grow (HELM prints a loss of 53 to 62 % at 256 tokens, E-HELM-26), beside a window on the accelerator, and beside
  caches in host memory;
- batch: that split with 1, 2, 4, 8 sequences: tokens/s of all together, or what memory is too small.

Every row is the median of interleaved pairs; a figure is not to be quoted when others took more than 8 % of the CPU
time."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path

from benchmarks.asking import ask
from benchmarks.comparison import Row, Side, compare
from benchmarks.machine import print_machine
from benchmarks.rows import show
from helmsman.executor._kernels import isa, select_isa, supported_isas
from helmsman.executor.engine import Engine
from helmsman.executor.graph.loading import load_graphs
from helmsman.executor.measuring.bench import BenchRunner, Test
from helmsman.executor.programs.growing_cache import GROWTH
from helmsman.executor.system.machine import Machine
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import Plan

BATCHES = (1, 2, 4, 8)
UNIT = "tokens/s"


def main() -> int:
    """Measure and print."""
    args = _arguments()
    print_machine()
    show(chain(_kernels(args), _caches(args), _batches(args)), args.json)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--cpu-record", type=Path, required=True, help="a record of this machine's processors alone")
    parser.add_argument("--record", type=Path, required=True, help="one with a loopback accelerator")
    parser.add_argument("--ram-avail", help="host memory of the split, for example so little that there has to be one")
    parser.add_argument("--format", default="f16", help="of weights")
    parser.add_argument("--steps", type=int, default=32, help="decode steps of a run")
    parser.add_argument("--depth", type=int, default=2048, help="tokens before them, for caches")
    parser.add_argument("--window", type=int, default=1024, help="tokens of the window on the accelerator")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _kernels(args: argparse.Namespace) -> Iterator[Row]:
    """One instruction set beside lower ones and PyTorch."""
    plan = _asked(args, args.cpu_record, context=args.steps + 2)
    test, threads = Test(0, args.steps, 0), plan.schedule.threads or len(Machine.this().cpus)
    with _loaded(args, plan) as engine:
        runner, best = BenchRunner(engine, 1), isa()
        ours = Side(f"kernels {best}", args.steps, partial(_with_isa, best, runner, test))
        for lower in supported_isas()[supported_isas().index(best) + 1 :]:
            other = Side(lower, args.steps, partial(_with_isa, lower, runner, test))
            yield _compared(ours, other, threads, args.pairs)
        select_isa(best)
        with load_graphs(plan, args.checkpoint, Machine.this()) as graphs:
            yield _compared(ours, _side("torch", graphs, test), threads, args.pairs)


def _caches(args: argparse.Namespace) -> Iterator[Row]:
    """Caches in full beside the other ways to keep them: from nothing until they have grown once, and at a depth."""
    plain, deep = _split(args), Test(0, args.steps, args.depth)
    ways = (
        ("growing", partial(_loaded, args, plain, growing=True), Test(0, GROWTH + args.steps, 0)),
        ("window", partial(_loaded, args, _split(args, kv_window=args.window)), deep),
        ("offloaded", partial(_loaded, args, _split(args, kv_offload=True)), deep),
    )
    with closing(_loaded(args, plain)) as engine:
        for name, load, test in ways:
            with closing(load()) as other:
                ours = _side(f"caches in full, {plain.label}, {test.name}", engine, test)
                yield _compared(ours, _side(name, other, test), 1, args.pairs)


def _batches(args: argparse.Namespace) -> Iterator[Row]:
    """Sequences together beside one; sizes that do not fit are printed with the reason."""
    plan, test = _split(args), Test(0, args.steps, 0)
    with closing(_loaded(args, plan)) as engine:
        one = _side("batch 1", engine, test)
        for batch in BATCHES[1:]:
            try:
                many = _loaded(args, _of_batch(plan, batch))
            except InfeasibleError as error:
                print(f"batch {batch}: {error}".splitlines()[0], flush=True)
                continue
            with closing(many):
                yield _compared(_side(f"batch {batch}", many, test), one, 1, args.pairs)


def _asked(args: argparse.Namespace, record: Path, **options: object) -> Plan:
    work = {"prompt_tokens": 1, "output_tokens": args.steps, "format": args.format}
    return ask(model=args.checkpoint, hw=record, strategy="layer-split", **work, **options)


def _split(args: argparse.Namespace, **options: object) -> Plan:
    """Over the processor and the loopback accelerator, with room for the depth."""
    return _asked(args, args.record, context=args.depth + args.steps + 2, ram_avail=args.ram_avail, **options)


def _of_batch(plan: Plan, batch: int) -> Plan:
    """The same split, for more sequences."""
    return plan.model_copy(update={"workload": plan.workload.model_copy(update={"batch": batch})})


def _loaded(args: argparse.Namespace, plan: Plan, growing: bool = False) -> Engine:
    longest = min(args.depth, plan.workload.context - 1)
    return Engine.load(plan, args.checkpoint, Machine.this(), prompt_tokens=longest, growing=growing)


def _side(name: str, engine: Engine, test: Test) -> Side:
    """Decode steps, of all sequences together."""
    runner = BenchRunner(engine, max(1, test.depth))
    return Side(name, runner.sequences * test.steps, partial(runner.seconds, test))


def _with_isa(name: str, runner: BenchRunner, test: Test) -> float:
    select_isa(name)
    return runner.seconds(test)


def _compared(ours: Side, other: Side, threads: int, pairs: int) -> Row:
    """After one run of each, which fills caches."""
    ours.seconds()
    other.seconds()
    return compare(ours, other, threads, UNIT, pairs)


if __name__ == "__main__":
    sys.exit(main())
