"""Every operation split executed on this machine: is the chosen one the best, and is its prediction right?

    python -m benchmarks.op_splits --model Qwen3-1.7B --hardware FILE --batch 1

All splits [i, j) of the layer are executed once; the five fastest are measured again, interleaved with the chosen one
and with streaming everything, each time between probes. Prints, per split, the predicted and measured decode step and
the signed error; for those measured again also the error scaled by the probes (rule 7 of measuring), its noise from
round to round and how busy the host was, planned and measured, from the first operation of layers to the last
(embedding and head run alone before and after them, and are no part of a split). Then the bars: the chosen one within
max(3 %, 2 x noise) of the best, its gain over streaming against the predicted one, every scaled error within
max(10 %, 2 x noise), and the host busy for 90 % of the layers' time wherever the plan says that it is."""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import print_machine
from helmsman.analysis.check import check
from helmsman.cli.isa import select_from_environment
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Request, measure, trace
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.decision import plan_document
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import predict
from helmsman.planner.strategies.op_split.search import Split
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame, label, place
from helmsman.scheduler.iteration import decode
from helmsman.schemas.check_report import CheckedTerm
from helmsman.schemas.plan import Plan, Strategy
from helmsman.schemas.trace import Span
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay, spans

FASTEST = 5
QUIET = 0.08
"""A round in which others took a larger share of the processors is repeated."""
ATTEMPTS = 3
TOLERANCE = 0.10
BALANCED = 0.90
"""A plan whose host computes for at least this share of the layers' time is balanced."""


@dataclass
class Executed:
    """A split, its plan, the median decode step of its first execution, and what was measured again."""

    split: Split
    plan: Plan
    once: float = 0.0
    again: list[CheckedTerm] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    """By round, the share of the layers' time in which the host computed."""
    disturbed: int = 0
    """Rounds in which others took more than their share of the processors at every attempt."""

    @property
    def predicted(self) -> float:
        """Seconds of a decode step."""
        return self.plan.predicted.decode.seconds.mid

    @property
    def seconds(self) -> float:
        """The median step over the rounds."""
        return statistics.median(row.measured for row in self.again)

    @property
    def at_speed(self) -> list[float]:
        """By round, the step relative to the prediction at the speeds of that round."""
        return [row.measured / row.scaled for row in self.again]

    @property
    def error(self) -> float:
        """Signed and scaled."""
        return statistics.median(self.at_speed) - 1

    @property
    def planned_busy(self) -> float:
        """The share of the layers' time in which the host computes in the simulated first decode step."""
        work = self.plan.workload
        graph, costs = lower(self.plan, decode(work, 1)), cost_model(self.plan)
        done = replay(graph, lambda task: costs.price(task).mid, self.plan.hardware, costs.slowed(), costs.between())
        return _host_share(spans(done), self.plan)

    @property
    def measured_busy(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.busy)

    @property
    def noise(self) -> float:
        """How far rounds lie from their median, relative: the median distance."""
        middle = statistics.median(self.at_speed)
        return statistics.median(abs(each - middle) for each in self.at_speed) / middle


def main() -> int:
    """Execute all, then the fastest again, and print what holds."""
    args = _arguments()
    select_from_environment()
    print_machine()
    asked = _question(args)
    everything, known = [_planned(asked, split) for split in _chosen(asked, args.every)], _known(args)
    for number, each in enumerate(everything):
        each.once = known.get(each.plan.label) or _once(each, args)
        print(f"{number + 1:3d}/{len(everything)} {_line(each, each.once)}", flush=True)
    chosen = next(m for m in everything if m.split == asked.finalists[0][0])
    streamed = next(m for m in everything if (m.split.start, m.split.stop) == (0, len(asked.units)))
    fastest = sorted(everything, key=lambda m: m.once)[:FASTEST]
    again = list({id(m): m for m in (chosen, streamed, *fastest)}.values())
    for number in range(args.rounds):
        for each in again:
            _again(asked, each, args)
            print(
                f"round {number + 1} {_line(each, each.again[-1].measured)} scaled {each.at_speed[-1] - 1:+.1%}",
                flush=True,
            )
    return _report(everything, again, args)


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
    parser.add_argument("--after", type=Path, metavar="FILE", help="what --out wrote: these are not executed once more")
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
    return OpSplit(frame, SplitRules(), CostOptions(), "latency")


def _splits(asked: OpSplit) -> Iterator[Split]:
    units = len(asked.units)
    yield asked.every_split.at(0, 0)
    for start in range(units):
        for stop in range(start + 1, units + 1):
            yield asked.every_split.at(start, stop)


def _chosen(asked: OpSplit, every: int) -> list[Split]:
    """Each `every`-th split, and always the chosen one and streaming everything."""
    wanted = (asked.finalists[0][0], asked.every_split.at(0, len(asked.units)))
    return [split for n, split in enumerate(_splits(asked)) if n % every == 0 or split in wanted]


def _planned(asked: OpSplit, split: Split) -> Executed:
    layout = asked.layout(split)
    placement = place(asked.frame, layout)
    name, predicted = label(asked.frame, layout), predict(placement, asked.costs)
    strategy = Strategy(name="op-split", options={"operation_table": asked.costs.table is not None})
    return Executed(split, plan_document(placement, name, strategy, predicted))


def _known(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of the splits that an earlier call executed, by label."""
    rows = json.loads(args.after.read_text())["rows"] if args.after else []
    return {row["plan"]: row["once"] for row in rows}


def _once(each: Executed, args: argparse.Namespace) -> float:
    """One execution: load, prompt, decode; the median of the steps after the first."""
    with closing(_loaded(each, args)) as engine:
        done = engine.generate(_tokens(each.plan), args.steps + 1, ignore_eos=True)
    return float(np.median(np.diff(done.moments)[2:]))


def _again(asked: OpSplit, each: Executed, args: argparse.Namespace) -> None:
    """One more execution between probes; repeated while others are at work on this machine."""
    for attempt in range(ATTEMPTS):
        with closing(_loaded(each, args)) as engine:
            runs = measure(engine, Request(_tokens(each.plan), args.steps + 1, ignore_eos=True), 1, Machine.this())
        found = check(each.plan, asked.costs, trace(each.plan, runs), None, TOLERANCE)
        if found.others is None or found.others <= QUIET:
            break
        each.disturbed += attempt == ATTEMPTS - 1
    each.again.append(found.step)
    each.busy.append(_host_share(trace(each.plan, runs).spans, each.plan))


def _host_share(executed: Iterable[Span], plan: Plan) -> float:
    """Of the time from the first to the last operation of layers in each decode step, the share in which the host
    computed them."""
    host, devices = roles(plan.hardware).host.name, {device.name for device in plan.hardware.devices}
    steps: dict[int, list[Span]] = {}
    for span in executed:
        if span.phase == "decode" and span.layer >= 0 and span.resource in devices:
            steps.setdefault(span.iteration, []).append(span)
    busy = sum(span.end_s - span.start_s for step in steps.values() for span in step if span.resource == host)
    return busy / sum(max(s.end_s for s in step) - min(s.start_s for s in step) for step in steps.values())


def _loaded(each: Executed, args: argparse.Namespace) -> Engine:
    return Engine.load(each.plan, args.checkpoints / args.model, Machine.this())


def _tokens(plan: Plan) -> NDArray[np.int32]:
    work = plan.workload
    return np.array([[(37 * i + 11 * b) % 256 for i in range(work.prompt_tokens)] for b in range(work.batch)], np.int32)


def _line(each: Executed, seconds: float) -> str:
    error = seconds / each.predicted - 1
    return f"{each.plan.label:58s} {1e3 * each.predicted:8.1f} ms {1e3 * seconds:8.1f} ms {error:+7.1%}"


def _report(everything: list[Executed], again: list[Executed], args: argparse.Namespace) -> int:
    for each in again:
        print(f"again   {_line(each, each.seconds)} scaled {each.error:+.1%} noise {each.noise:.1%}", end="")
        print(f" host busy {each.measured_busy:.1%} (planned {each.planned_busy:.1%}) disturbed {each.disturbed}")
    chosen, streamed = again[0], again[1]
    best = min(again, key=lambda each: each.seconds)
    behind, bar = chosen.seconds / best.seconds - 1, max(0.03, 2 * max(chosen.noise, best.noise))
    gain, expected = 1 - chosen.seconds / streamed.seconds, 1 - chosen.predicted / streamed.predicted
    print(f"chosen is {behind:+.1%} of the best (bar {bar:.1%})")
    print(f"{gain:.1%} faster than streaming (predicted {expected:.1%})")
    wrong = [each.plan.label for each in again if abs(each.error) > max(TOLERANCE, 2 * each.noise)]
    print(f"predictions beyond the bar: {', '.join(wrong) or 'none'}")
    idle = [each.plan.label for each in again if each.planned_busy >= BALANCED > each.measured_busy]
    print(f"balanced plans whose host was idle: {', '.join(idle) or 'none'}")
    if args.out:
        rows = [
            {"plan": m.plan.label, "predicted": m.predicted, "once": m.once, "at_speed": m.at_speed, "busy": m.busy}
            for m in everything
        ]
        content = {"behind": behind, "gain": gain, "expected": expected, "rows": rows}
        args.out.write_text(json.dumps(content, indent=1))
    return 0 if behind <= bar and not wrong and not idle and (gain >= 0.25 or expected < 0.35) else 4


if __name__ == "__main__":
    sys.exit(main())
