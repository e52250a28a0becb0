"""Whether more freedom is never slower, proofs are sound, and the default is near simple plans: `python -m
benchmarks.freedom`.

Random questions, asked as on the command line: a dense model of the catalogue, or a GGUF file that mixes formats, on a
machine of hwdb, or one of the profiled `--records`, with all of its memory or less, any format of weights and of keys
and values, batches, objectives. Of each, by predicted seconds of the objective:

- freedom: a strategy that may choose more, or has more memory or a second accelerator, is never slower, nor without a
  plan where it had one (`WIDENINGS`), a tenth of a per cent apart from that;
- recommendations: the default, which prefers simple plans, never has both a median more than 3 % and a mean more than
  10 % longer than what it recommends with less memory, under a promise (`--slo`) that its own plan just misses, or with
  another objective;
- proofs: every bound of every plan, of its objective and of its phases, is at most the plan's own seconds, and the one
  of `optimal` is at most those of layer splits, of llama.cpp's split and of one device with everything; a proof, and
  the seconds that runner-ups are shown beside, are of the plan's own seconds, and no runner-up is faster;
- the default: asked without a strategy or an objective, whole requests take at most 3 % longer than with the best of
  these, under the same software.

What is another contract or machine rather than more freedom is not compared: another way to move or keep data that is
asked for (`--pinning`, `--no-overlap`, `--kv-offload`, `--kv-window`, `--home`, `--percent`, `--nvme bounce`), other
attention (`--fused-attention`), an engine's own rule (`--ngl`, `--cpu-offload-gb`), other
work (`--batch`, `--batches`, `--block`: a larger batch is not a freer one, so only `best` is compared), and numbers of
parts that do not divide each other (`--chunks 6` and `--chunks 8` cut elsewhere).

Prints every failure with the command lines that show it. Exits 4 where there is one."""

import argparse
import contextlib
import io
import json
import random
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from multiprocessing import Pool
from pathlib import Path

from tqdm import tqdm

from benchmarks.random_questions import Question, drawn, roomy
from helmsman.cli.app import run_command
from helmsman.cli.plan import build_parser, plan_request
from helmsman.cli.strategies import strategy_named
from helmsman.hwdb.percentiles import mean_of
from helmsman.lowering.placement import batches_together
from helmsman.planner.choice import MOST_PASSED_OVER
from helmsman.planner.decide import decide as decide_request
from helmsman.planner.decision import Decision
from helmsman.planner.prediction.objective import objective_seconds
from helmsman.planner.prediction.speed import speed
from helmsman.planner.registry import RECOMMENDED
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval

CASES = 300

ROUNDING = 1e-6
"""Relative difference of bounds, and of rates, that is none."""

TOLERANCE = 1e-3
"""The share by which a plan may be slower than that of a narrower question. The search does not look for compositions
better by less (`planner.strategies.optimal.search.compositions.SLACK`), as predictions are wrong by far more."""

MARGIN = 0.03
"""So much longer than the best of simple plans the default may take."""

PROVED = {"decode step": "latency", "prompt pass": "ttft", "request": "request"}
"""Objectives, as proofs call them."""

ASKED_FOR = ("request", "latency", "ttft")
"""Objectives of seconds, under each of which the default is asked."""

SIMPLE = (
    "layer-split",
    "llama-cpp --same-software",
    "llama-cpp --ngl 999 --same-software",
    "llama-cpp --ngl 0 --same-software",
    "vllm --cpu-offload-gb least --same-software",
)
"""Strategies, with their options, whose plans the default plan must not be slower than: layer splits, the placements of
llama.cpp and vLLM, and one device with everything. `--same-software` prices a placement with Helm's own executor."""


@dataclass(frozen=True)
class Widening:
    """Options of a strategy, or of the default where it is empty, and others that let it choose more."""

    strategy: str
    narrow: str
    wide: str
    needs: str = ""


WIDENINGS = (
    Widening("op-split", "", "--chunks 2"),
    Widening("op-split", "", "--chunks 8"),
    Widening("op-split", "--chunks 2", "--chunks 4"),
    Widening("op-split", "--chunks 4", "--chunks 8"),
    Widening("op-split", "", "--compress best", "plain"),
    Widening("op-split", "--compress weights", "--compress best", "plain"),
    Widening("op-split", "--compress kv", "--compress best", "plain"),
    Widening("op-split", "--compress all --chunks 4", "--compress best --chunks 4", "plain"),
    Widening("op-split", "--no-cpu-offload", ""),
    Widening("op-split", "--no-cpu-offload --chunks 4", "--chunks 4"),
    Widening("op-split", "", "--nvme direct", "nvme"),
    Widening("op-split", "--compress best", "--compress best --nvme direct", "plain nvme"),
    Widening("optimal", "", "--compress best", "plain"),
    Widening("optimal", "--compress weights", "--compress best", "plain"),
    Widening("optimal", "--compress kv", "--compress best", "plain"),
    Widening("optimal", "--compress kv", "--compress all", "plain"),
    Widening("optimal", "", "--nvme direct", "nvme"),
    Widening("optimal", "--batch 4", "--batch best", "throughput one"),
    *(
        Widening(strategy, less, "", needs)
        for strategy in (
            "optimal",
            "op-split",
            "layer-split",
            "flexgen",
            "flexgen-lp",
            "layerwise-map",
            "weights-on-host",
            "cpu-only",
            "hetegen",
            "twinpilots",
            "llama-cpp",
            "zero-inference",
            "vllm",
            "accelerate",
        )
        for less, needs in (("--vram-avail LESS", "vram"), ("--ram-avail LESS", "ram"))
    ),
    *(
        Widening("", f"--{memory}-avail {less}", "", memory)
        for memory in ("vram", "ram")
        for less in ("LESS", "NEARLY", "BARELY")
    ),
    Widening("optimal", "--gpu ONE", "--gpu TWO", "composed"),
    Widening("layer-split", "--gpu ONE", "--gpu TWO", "composed"),
)
"""Pairs of questions of which the second contains the first."""


@dataclass(frozen=True)
class Answer:
    """A decision, or why there is none; `code`: the exit code."""

    code: int
    decision: Decision | None
    reason: str

    @property
    def plan(self) -> Plan | None:
        """The decision's plan."""
        return None if self.decision is None else self.decision.plan

    def seconds(self, objective: str) -> float:
        """Of the objective, for all batches."""
        return self.interval(objective).mid

    def interval(self, objective: str) -> Interval:
        """Seconds of the objective, for all batches, with their ends."""
        assert self.plan is not None
        of = speed(self.plan)
        if objective == "latency":
            return of.step
        return of.ttft if objective == "ttft" else of.request


@dataclass(frozen=True)
class Checked:
    """What was found of one question."""

    number: int
    question: Question
    compared: int
    failures: tuple[str, ...]


Ask = Callable[[str], Answer]


def asked(line: str) -> Answer:
    """Ask helm-plan in this process; the answer holds the decision with its runner-ups, which a plan document lacks."""
    out, errors, decisions = io.StringIO(), io.StringIO(), list[Decision]()

    def decide(args: argparse.Namespace) -> int:
        decisions.append(decide_request(plan_request(args)))
        return 0

    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        words = [*shlex.split(line), "--json"]
        code = run_command(build_parser(strategy_named(words)), decide, words)
    if decisions:
        return Answer(code, decisions[0], "")
    return Answer(code, None, json.dumps(json.loads(out.getvalue())["error"]) if out.getvalue() else errors.getvalue())


def checked(folder: Path, records: Sequence[Path], seed: int, largest: float, widenings: int, number: int) -> Checked:
    """Ask the first of random questions that any strategy has a plan for in all ways, and with so many `widenings`;
    `records`: profiled machines; `largest`: parameters of its model at most."""
    answers: dict[str, Answer] = {}

    def ask(line: str) -> Answer:
        if line not in answers:
            answers[line] = asked(line)
        return answers[line]

    for attempt in count():
        chance = random.Random(f"{seed} {number} {attempt}")
        question, answers = drawn(chance, folder, largest, records), {}
        failures = list(_default(question, ask))
        if failures or any(answer.plan is not None for answer in answers.values()):
            break
    fitting = [each for each in WIDENINGS if set(each.needs.split()) <= question.traits]
    for each in chance.sample(fitting, min(widenings, len(fitting))):
        failures += _widened(question, each, ask)
    failures += _recommended(question, ask)
    for line, answer in answers.items():
        failures += _sound(line, answer)
    plans = sum(answer.plan is not None for answer in answers.values())
    return Checked(number, question, plans, tuple(failures))


def _widened(question: Question, widening: Widening, ask: Ask) -> Iterator[str]:
    lines = [question.line(widening.strategy, options) for options in (widening.narrow, widening.wide)]
    narrow, wide = map(ask, lines)
    if narrow.plan is None:
        return
    if wide.plan is None:
        if wide.code != 2:
            yield f"freedom: without a plan for being allowed more: {wide.reason}{_shown(lines)}"
        return
    if "--batch best" in widening.wide:
        rates = [speed(answer.plan).rate.mid for answer in (narrow, wide) if answer.plan is not None]
        if rates[1] < rates[0] * (1 - ROUNDING):
            yield f"freedom: {rates[1]:.5g} tokens/s instead of {rates[0]:.5g}{_shown(lines)}"
        return
    if not widening.strategy:
        yield from _dearer(question.objective, narrow, wide, lines)
        return
    before, after = (answer.seconds(question.objective) for answer in (narrow, wide))
    if after > before * (1 + TOLERANCE):
        yield f"freedom: {after / before - 1:.3%} slower ({before:.6g} s, {after:.6g} s){_shown(lines)}"


def _dearer(objective: str, narrow: Answer, wide: Answer, lines: Sequence[str]) -> Iterator[str]:
    """Check that what the default recommends where it may choose more is no dearer than what it recommends where it may
    not, but for what it allows a simpler plan. Yields failures."""
    before, after = (answer.interval(objective) for answer in (narrow, wide))
    by_median = after.mid > before.mid * (1 + MARGIN)
    if by_median and mean_of(after) > mean_of(before) * MOST_PASSED_OVER:
        ends = (f"{each.low:.4g}, {each.mid:.4g}, {each.high:.4g} s" for each in (before, after))
        yield f"recommendations: {' became '.join(ends)}{_shown(lines)}"


def _recommended(question: Question, ask: Ask) -> Iterator[str]:
    """Check the default of one question under every objective, and under a promise that the plan, of which it says that
    another was passed over, just misses. Yields failures."""
    lines = {objective: question.line("", "", objective) for objective in ASKED_FOR}
    answers = {objective: ask(line) for objective, line in lines.items()}
    if any(answer.plan is None for answer in answers.values()):
        return
    for objective, answer in answers.items():
        for other, found in answers.items():
            if other != objective:
                yield from _dearer(objective, found, answer, [lines[other], lines[objective]])
        assert answer.plan is not None
        if answer.plan.passed_over and objective != "request":
            limit = answer.seconds(objective) * (1 - ROUNDING)
            promised = f"{lines[objective]} --slo {'tpot' if objective == 'latency' else 'ttft'}={limit:.9f}s"
            if ask(promised).plan is not None:
                yield from _dearer(objective, ask(promised), answer, [promised, lines[objective]])


def _default(question: Question, ask: Ask) -> Iterator[str]:
    """Check the default plan, asked for without options, against simple plans by the seconds of a request, and the
    bound of `optimal` against all of these. Yields failures."""
    default, searched, *simple = (question.line(each, "", "") for each in ("", "optimal", *SIMPLE))
    planned = [(ask(line).seconds("request"), line) for line in simple if ask(line).plan is not None]
    if not planned:
        return
    best, line = min(planned)
    for each in (default, searched):
        if ask(each).plan is None:
            yield f"default: no plan where another strategy has one: {ask(each).reason}{_shown([each, line])}"
            return
    took = ask(default).seconds("request")
    if took > best * (1 + MARGIN):
        yield f"default: {took / best - 1:.2%} slower ({took:.6g} s, {best:.6g} s){_shown([default, line])}"
    plan = ask(searched).plan
    proof = plan.certificate if plan is not None else None
    if proof is not None and best < proof.lower_bound * (1 - ROUNDING):
        yield f"proof: {best:.6g} s lie below the bound {proof.lower_bound:.6g} s{_shown([searched, line])}"


def _sound(line: str, answer: Answer) -> Iterator[str]:
    """Check one answer alone: the plan lies above its own bounds, and the decision fits the plan. Yields failures."""
    if answer.code == 1:
        yield f"internal error: {answer.reason}{_shown([line])}"
    if answer.decision is None:
        return
    plan, proof = answer.decision.plan, answer.decision.plan.certificate
    for phase in (plan.predicted.prefill, plan.predicted.decode):
        if phase.lower_bound > phase.seconds.mid * (1 + ROUNDING):
            yield f"proof: {phase.seconds.mid} s of a phase lie below {phase.lower_bound} s{_shown([line])}"
    if proof is not None and proof.lower_bound > proof.seconds * (1 + ROUNDING):
        yield f"proof: {proof.seconds} s lie below their bound {proof.lower_bound} s{_shown([line])}"
    own = answer.seconds(PROVED[proof.objective]) if proof is not None else 0.0
    if proof is not None and abs(proof.seconds - own) > own * ROUNDING:
        yield f"proof: of {proof.seconds} s for a plan of {own} s{_shown([line])}"
    yield from _beside(line, answer.decision)


def _beside(line: str, decision: Decision) -> Iterator[str]:
    """Check that a decision states the seconds of its plan, and that no runner-up takes fewer. Yields failures."""
    work, together = decision.plan.workload, batches_together(decision.plan)
    words = shlex.split(line)
    options = build_parser(strategy_named(words)).parse_args(words)
    own = objective_seconds(decision.plan.predicted, work, together, options.objective).mid
    if options.strategy == RECOMMENDED and options.objective in ("latency", "ttft"):
        own *= work.batches / together  # of all batches, as plans of several strategies are compared
    if abs(decision.seconds - own) > own * ROUNDING:
        yield f"runner-ups: beside {decision.seconds} s for a plan of {own} s{_shown([line])}"
    label, least = min(decision.runner_ups, key=lambda each: each[1], default=("", inf))
    if least < decision.seconds * (1 - ROUNDING):
        yield f"runner-ups: {label} takes {least} s, the plan {decision.seconds} s{_shown([line])}"


def _shown(lines: Sequence[str]) -> str:
    return "".join(f"\n      helm-plan {line}" for line in lines)


def main() -> int:
    """Ask, print, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=CASES, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--widenings", type=int, default=3, metavar="N", help="that every question is asked with")
    parser.add_argument("--largest", type=float, default=inf, metavar="N", help="parameters of a model at most")
    parser.add_argument(
        "--records", type=Path, nargs="+", default=(), help="hardware documents that helm-profile wrote"
    )
    parser.add_argument("--folder", type=Path, help="where outlines of GGUF files and roomier records go, and stay")
    args = parser.parse_args()
    failed = plans = 0
    with contextlib.ExitStack() as opened:
        folder = args.folder or Path(opened.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        pool = opened.enter_context(Pool(args.jobs))
        records = [roomy(record, folder) for record in args.records]
        ask = partial(checked, folder, records, args.seed, args.largest, args.widenings)
        answers = pool.imap_unordered(ask, range(args.first, args.first + args.cases))
        for found in tqdm(answers, total=args.cases, unit=" questions", mininterval=10):
            plans, failed = plans + found.compared, failed + bool(found.failures)
            for failure in found.failures:
                print(f"{found.number:4d} {failure}", flush=True)
    print(f"{args.cases} questions, {plans} plans: {failed} questions with failures")
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
