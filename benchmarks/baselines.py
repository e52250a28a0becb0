"""Every strategy's plan executed on this machine: are the baselines as fast as predicted, and in the predicted order?

    python -m benchmarks.baselines --checkpoint DIR --hardware FILE [--vram-avail 300MB]

Each question is asked as a user would ask `helm-plan`; a plan that does not fit or is not executed is named with the
reason. The others are executed in turns over several rounds, every execution between probes and repeated while others
are at work on this machine. Prints, per plan, the predicted and measured decode step, the signed error, the same scaled
by the probes (rule 7 of measuring) and its noise from round to round; then both orders, and the pairs of plans that the
prediction puts in the wrong one by more than their noise. Exit code 4 when there is such a pair, or a scaled error
beyond max(10 %, 2 x noise)."""

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.asking import ask
from benchmarks.machine import print_machine
from helmsman.analysis.check import check
from helmsman.cli.isa import select_from_environment
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Measured, Request, measure, trace
from helmsman.executor.system.machine import Machine
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.registry import OF_DENSE
from helmsman.schemas.check_report import CheckedTerm
from helmsman.schemas.errors import HelmError
from helmsman.schemas.plan import Plan

QUESTIONS = (
    *OF_DENSE,
    "flexgen --percent 0,60,40",
    "flexgen --percent 0,60,40 --compress weights",
    "weights-on-host --compress weights",
)
QUIET = 0.08
"""A round in which others took a larger share of the processors is repeated."""
ATTEMPTS = 3
TOLERANCE = 0.10


@dataclass
class Executed:
    """A question, its plan, and the decode step of every round."""

    asked: str
    plan: Plan
    rounds: list[CheckedTerm] = field(default_factory=list)

    @property
    def predicted(self) -> float:
        """Seconds of a decode step."""
        return self.plan.predicted.decode.seconds.mid

    @property
    def measured(self) -> float:
        """The median step over the rounds."""
        return statistics.median(row.measured for row in self.rounds)

    @property
    def error(self) -> float:
        """Signed, scaled by the probes of each round."""
        return statistics.median(self.at_speed) - 1

    @property
    def noise(self) -> float:
        """How far rounds lie from their median, relative: the median distance."""
        middle = statistics.median(self.at_speed)
        return statistics.median(abs(each - middle) for each in self.at_speed) / middle

    @property
    def at_speed(self) -> list[float]:
        """By round, the step relative to the prediction at the speeds of that round."""
        return [row.measured / row.scaled for row in self.rounds]

    def __str__(self) -> str:
        error = self.measured / self.predicted - 1
        return (
            f"{self.asked:44s} {1e3 * self.predicted:8.1f} ms {1e3 * self.measured:8.1f} ms {error:+7.1%}"
            f" scaled {self.error:+7.1%} noise {self.noise:5.1%}  {self.plan.label}"
        )


def main() -> int:
    """Plan all, execute in turns, and print what holds."""
    args = arguments(__doc__ or "").parse_args()
    select_from_environment()
    print_machine()
    plans = list(fitting(args.ask or QUESTIONS, args))
    for number in range(args.rounds):
        for each in plans:
            each.rounds.append(executed_round(each.plan, args))
            row = each.rounds[-1]
            print(f"round {number + 1} {each.asked:44s} {1e3 * row.measured:8.1f} ms", flush=True)
    return _report(plans, args)


def arguments(description: str) -> argparse.ArgumentParser:
    """What is asked, of which machine, and how often it is executed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--hardware", required=True, help="a record of this machine with a loopback accelerator")
    parser.add_argument("--vram-avail", help="what the accelerator may use (default: what its record says)")
    parser.add_argument("--ram-avail", help="what of host memory a plan may use (default: what its record says)")
    parser.add_argument("--format", default="bf16", help="of weights")
    parser.add_argument("--kv-format", default="f32")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4, help="decode steps per execution")
    parser.add_argument("--rounds", type=int, default=3, help="executions of every plan, in turns")
    parser.add_argument("--ask", action="append", help="a strategy with its options, in place of the default questions")
    parser.add_argument("--storage", type=Path, action="append", default=[], help="a folder for what lives on storage")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser


def fitting(questions: Iterable[str], args: argparse.Namespace) -> Iterator[Executed]:
    """The plans that exist and are executed, once to see that they are; the others are named."""
    seen: dict[str, str] = {}
    for asked in questions:
        try:
            plan = planned(asked, args)
            if plan.label in seen:
                print(f"{asked:44s} is the plan of {seen[plan.label]}")
                continue
            _execute(plan, args)
        except HelmError as error:
            print(f"{asked:44s} {str(error).splitlines()[0]}", flush=True)
            continue
        seen[plan.label] = asked
        print(f"{asked:44s} {1e3 * plan.predicted.decode.seconds.mid:8.1f} ms  {plan.label}", flush=True)
        yield Executed(asked, plan)


def planned(asked: str, args: argparse.Namespace) -> Plan:
    """What helm-plan answers for one decode step. Raises HelmError with what it says instead."""
    strategy, *options = shlex.split(asked)
    work = {"prompt_tokens": args.prompt_tokens, "output_tokens": args.steps + 1, "batch": args.batch}
    formats = {"format": args.format, "kv_format": args.kv_format}
    memory = {"vram_avail": args.vram_avail, "ram_avail": args.ram_avail}
    named = {"model": args.checkpoint, "hw": args.hardware, "strategy": strategy, "batches": args.batches}
    return ask(*options, **named, objective="latency", **work, **formats, **memory)


def executed_round(plan: Plan, args: argparse.Namespace) -> CheckedTerm:
    """The decode step of one more execution; repeated while others are at work on this machine."""
    for attempt in range(ATTEMPTS):
        runs = _execute(plan, args)
        found = check(plan, cost_model(plan), trace(plan, runs), None, TOLERANCE)
        if found.others is None or found.others <= QUIET or attempt == ATTEMPTS - 1:
            break
    return found.step


def _execute(plan: Plan, args: argparse.Namespace) -> Measured:
    """Load, probe, prompt, decode, probe."""
    machine, stored = Machine.this(), any(rule.path in ("bounce", "direct") for rule in plan.residence)
    request = Request(prompt_of(plan), args.steps + 1, ignore_eos=True)
    with closing(Engine.load(plan, args.checkpoint, machine, storage=args.storage if stored else ())) as engine:
        return measure(engine, request, 1, machine)


def prompt_of(plan: Plan) -> NDArray[np.int32]:
    """Tokens that a plan's prompts may have, (sequences, prompt)."""
    work = plan.workload
    sequences = work.batch * (work.batches if plan.schedule.order == "layer-major" else 1)
    return np.array([[(37 * i + 11 * b) % 256 for i in range(work.prompt_tokens)] for b in range(sequences)], np.int32)


def _wrong(plans: list[Executed]) -> Iterator[str]:
    """Pairs that the prediction puts in the other order than measured, by more than their noise."""
    for one, other in combinations(sorted(plans, key=lambda each: each.predicted), 2):
        apart = one.measured / other.measured - 1
        if apart > max(one.noise, other.noise):
            yield f"{one.asked} measured {apart:.1%} slower than {other.asked}"


def _margin(plans: list[Executed]) -> Iterator[str]:
    """How much faster `optimal` is than the best other by prediction, as predicted and as measured round by round."""
    ours = next((each for each in plans if each.asked == "optimal"), None)
    others = [each for each in plans if each is not ours]
    if ours is None or not others:
        return
    best = min(others, key=lambda each: each.predicted)
    fastest = min(others, key=lambda each: each.measured)
    gains = [theirs.measured / mine.measured - 1 for mine, theirs in zip(ours.rounds, best.rounds, strict=True)]
    yield (
        f"optimal is {best.predicted / ours.predicted - 1:.1%} faster than {best.asked} by prediction, "
        f"{statistics.median(gains):.1%} measured [{min(gains):.1%} .. {max(gains):.1%}]; "
        f"than the fastest other, {fastest.asked}, {fastest.measured / ours.measured - 1:.1%}"
    )


def _report(plans: list[Executed], args: argparse.Namespace) -> int:
    for each in sorted(plans, key=lambda each: each.measured):
        print(each)
    print("predicted: " + " < ".join(each.asked for each in sorted(plans, key=lambda each: each.predicted)))
    print("measured:  " + " < ".join(each.asked for each in sorted(plans, key=lambda each: each.measured)))
    wrong, pairs = list(_wrong(plans)), len(plans) * (len(plans) - 1) // 2
    print(f"{pairs - len(wrong)} of {pairs} pairs in the predicted order" + "".join(f"\n  {line}" for line in wrong))
    beyond = [each.asked for each in plans if abs(each.error) > max(TOLERANCE, 2 * each.noise)]
    print(f"predictions beyond the bar: {', '.join(beyond) or 'none'}")
    for line in _margin(plans):
        print(line)
    if args.out:
        rows = [
            {
                "asked": each.asked,
                "plan": each.plan.label,
                "predicted": each.predicted,
                "measured": [row.measured for row in each.rounds],
                "scaled": [row.scaled for row in each.rounds],
            }
            for each in plans
        ]
        args.out.write_text(json.dumps({"rows": rows, "wrong": wrong, "beyond": beyond}, indent=1))
    return 4 if wrong or beyond else 0


if __name__ == "__main__":
    sys.exit(main())
