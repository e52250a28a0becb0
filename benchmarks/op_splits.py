"""Every operation split executed on this machine: is the chosen one the best, and is its prediction right?

    python -m benchmarks.op_splits --model Qwen3-1.7B --hardware FILE --batch 1

All splits [i, j) of the layer are executed once; the five fastest are measured again, interleaved with the chosen one
and with streaming everything. Prints, per split, the predicted and measured decode step; then the bars: the chosen one
within max(3 %, 2 x noise) of the best, its gain over streaming against the predicted gain, how busy the CPU was."""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from helmsman.cli.isa import select_from_environment
from helmsman.executor.engine import Engine
from helmsman.executor.machine import Machine
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.costs import CostOptions
from helmsman.planner.decide import plan_document
from helmsman.planner.machine import roles
from helmsman.planner.predict import predict
from helmsman.planner.strategies.op_split.place import Frame, label, place
from helmsman.planner.strategies.op_split.search import Split
from helmsman.planner.strategies.op_split.strategy import OpSplit, OpSplitOptions
from helmsman.schemas.plan import Plan, Strategy
from helmsman.schemas.workload import Workload

FASTEST = 5


@dataclass
class Measured:
    """A split, its plan, and the seconds of its decode steps."""

    split: Split
    plan: Plan
    steps: list[float]

    @property
    def seconds(self) -> float:
        """The median step."""
        return statistics.median(self.steps)

    @property
    def noise(self) -> float:
        """How far repeated medians of half of the steps lie apart, relative."""
        halves = [statistics.median(self.steps[k::2]) for k in (0, 1)]
        return abs(halves[0] - halves[1]) / self.seconds


def main() -> int:
    """Measure all, then the fastest again, and print what holds."""
    args = _arguments()
    select_from_environment()
    asked = _question(args)
    everything = [_measured(asked, split) for split in _chosen(asked, args.every)]
    for number, each in enumerate(everything):
        _run(each, args, args.steps)
        print(f"{number + 1:3d}/{len(everything)} {_line(each)}", flush=True)
    chosen = next(m for m in everything if m.split == asked.found.best)
    streamed = next(m for m in everything if (m.split.start, m.split.stop) == (0, len(asked.units)))
    fastest = sorted(everything, key=lambda m: m.seconds)[:FASTEST]
    again = list({id(m): replace(m, steps=[]) for m in (chosen, streamed, *fastest)}.values())
    for _ in range(args.rounds):
        for each in again:
            _run(each, args, args.steps)
    return _report(again, args)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen3-1.7B")
    parser.add_argument("--checkpoints", type=Path, default=Path("demo/checkpoints"))
    parser.add_argument("--hardware", required=True, help="a record of this machine with a loopback accelerator")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4, help="decode steps per execution")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved executions of the fastest")
    parser.add_argument("--every", type=int, default=1, help="execute only every so many of the splits")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser.parse_args()


def _question(args: argparse.Namespace) -> OpSplit:
    model = load_model(str(args.checkpoints / args.model))
    output = args.steps + 1
    work = Workload(
        prompt_tokens=args.prompt_tokens,
        output_tokens=output,
        batch=args.batch,
        context=args.prompt_tokens + output,
    )
    frame = Frame(model, roles(load_hardware(args.hardware, None)), work, model.native_format, model.native_format)
    return OpSplit(frame, OpSplitOptions(), CostOptions())


def _splits(asked: OpSplit) -> Iterator[Split]:
    units = len(asked.units)
    yield asked.found.at(0, 0)
    for start in range(units):
        for stop in range(start + 1, units + 1):
            yield asked.found.at(start, stop)


def _chosen(asked: OpSplit, every: int) -> list[Split]:
    """Each `every`-th split, and always the chosen one and streaming everything."""
    wanted = (asked.found.best, asked.found.at(0, len(asked.units)))
    return [split for n, split in enumerate(_splits(asked)) if n % every == 0 or split in wanted]


def _measured(asked: OpSplit, split: Split) -> Measured:
    layout = asked.layout(split)
    placement = place(asked.frame, layout)
    name, predicted = label(asked.frame, layout), predict(placement, asked.costs)
    return Measured(split, plan_document(placement, name, Strategy(name="op-split"), predicted), [])


def _run(each: Measured, args: argparse.Namespace, steps: int) -> None:
    """One execution: load, prompt, decode; the steps after the first are kept."""
    work = each.plan.workload
    tokens = np.array(
        [[(37 * i + 11 * b) % 256 for i in range(work.prompt_tokens)] for b in range(work.batch)], np.int32
    )
    with closing(Engine.load(each.plan, args.checkpoints / args.model, Machine.this())) as engine:
        done = engine.generate(tokens, steps + 1, ignore_eos=True)
    each.steps += list(np.diff(done.moments)[2:])


def _line(each: Measured) -> str:
    predicted = each.plan.predicted.decode.seconds.mid
    error = each.seconds / predicted - 1
    return f"{each.plan.label:58s} {1e3 * predicted:8.1f} ms {1e3 * each.seconds:8.1f} ms {error:+7.1%}"


def _report(again: list[Measured], args: argparse.Namespace) -> int:
    chosen, streamed = again[0], again[1]
    for each in again:
        print(f"again   {_line(each)}  noise {each.noise:.1%}")
    best = min(each.seconds for each in again)
    noise = max(each.noise for each in again)
    behind, bar = chosen.seconds / best - 1, max(0.03, 2 * noise)
    gain = 1 - chosen.seconds / streamed.seconds
    expected = 1 - chosen.plan.predicted.decode.seconds.mid / streamed.plan.predicted.decode.seconds.mid
    print(f"chosen is {behind:+.1%} of the best (bar {bar:.1%})")
    print(f"{gain:.1%} faster than streaming (predicted {expected:.1%})")
    if args.out:
        rows = [
            {"plan": m.plan.label, "predicted": m.plan.predicted.decode.seconds.mid, "steps": m.steps} for m in again
        ]
        content = {"behind": behind, "gain": gain, "expected": expected, "rows": rows}
        args.out.write_text(json.dumps(content, indent=1))
    return 0 if behind <= bar else 4


if __name__ == "__main__":
    sys.exit(main())
