"""Is the plan that Helm gives by default ever slower, when a whole request is run, than the best simple one?

    python -m benchmarks.default_pairs --checkpoint DIR --hardware LINK2.json LINK6.json [--measure-s 180]

On every record: formats, memories, batches and lengths (`QUESTIONS`). The default plan (`best`, objective `request`)
stands against the fastest by prediction of a layer split, one device and the placements of llama-cpp and vllm (with as
little offloaded as fits) on the same software. A pair that is one and the same plan is equal and is not run. The others
run prompt and decode steps in the order A B B A, between probes, again while others are at work on this machine; A
against A gives the noise. What was measured is kept in `--work`, so that `--stages measure` goes on where it stopped,
after `--measure-s` seconds for example.

Prints, per pair, the margin (how much longer the simple plan takes): predicted, measured, and at the speeds of the
profile. Exit code 4 where the default is slower by more than noise, where less than 70 % of a predicted margin of 10
% or more is realised at the speeds of the profile, and where pairs are not measured yet: those beside which others
were at work in every attempt are among these, and a further `--stages measure` tries them again. A question for which
no simple plan fits has no pair; it is listed and not judged."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.asking import ask
from benchmarks.baselines import ATTEMPTS, QUIET, TOLERANCE, prompt_of
from benchmarks.machine import print_machine
from helmsman.analysis.check import check
from helmsman.cli.isa import select_from_environment
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Measured, Request, measure, trace
from helmsman.executor.system.machine import Machine
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.schemas.errors import HelmError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document

STAGES = ("plan", "measure", "report")
SIMPLE = ("layer-split", "weights-on-host", "llama-cpp --same-software", "vllm --same-software --cpu-offload-gb least")
WORTH, REALISED = 0.10, 0.70
"""A predicted margin that is to be seen, and how much of it."""
NO_SIMPLE = "no simple plan fits"
NOISE = 0.03
"""What two runs of one plan differ by at least, on a machine shared with others."""


@dataclass(frozen=True)
class Work:
    """Sequences that advance together, and tokens of each."""

    batch: int
    prompt: int
    output: int


FORMATS = {"bf16": 1.0, "q8_0": 0.53, "q4_0": 0.28}
"""With the bytes of a matrix as a share of those in bf16."""
WORKS = (Work(1, 64, 32), Work(1, 256, 32), Work(1, 32, 96), Work(4, 64, 32), Work(4, 256, 32))
BYTES = 1.2e9
"""Of Qwen3-0.6B's weights in bf16."""
TOKEN_BYTES = 2 * 28 * 8 * 128 * 2
"""Of its bf16 keys and values of a token: 28 layers, 8 heads of 128."""


@dataclass(frozen=True)
class Question:
    """One pair of plans; `record`: the machine."""

    record: Path
    format: str
    divided: bool
    work: Work

    @property
    def name(self) -> str:
        """Without spaces."""
        memory = "divided" if self.divided else "roomy"
        return f"{self.record.stem}-{self.format}-{memory}-{self.work.batch}x{self.work.prompt}+{self.work.output}"

    def asked(self, checkpoint: Path) -> dict[str, object]:
        """Options of helm-plan: memories of 0.45 of the weights' bytes on the accelerator, and of 0.9 on the host where
        neither is to hold all; beside them all caches."""
        weights = BYTES * FORMATS[self.format]
        caches = self.work.batch * (self.work.prompt + self.work.output) * TOKEN_BYTES
        host = int(0.9 * weights) + caches if self.divided else None
        memory = {"vram_avail": int(0.45 * weights) + caches, "ram_avail": host}
        work = {"batch": self.work.batch, "prompt_tokens": self.work.prompt, "output_tokens": self.work.output}
        formats = {"format": self.format, "kv_format": "bf16"}
        return {"model": checkpoint, "hw": self.record, "objective": "request", **memory, **work, **formats}


@dataclass(frozen=True)
class Execution:
    """Seconds of one request, and what was predicted of it at the speeds of that moment; `others`: the share of
    processor time that other processes took."""

    measured: float
    scaled: float
    others: float | None


@dataclass(frozen=True)
class Pair:
    """Two plans of a question with what they were predicted to take, and executions in the order A B B A."""

    name: str
    default: str
    simple: str
    default_s: float
    simple_s: float
    runs: tuple[Execution, ...]

    @property
    def same(self) -> bool:
        """Whether both are one plan, which is not run."""
        return not self.runs

    @property
    def disturbed(self) -> bool:
        """Whether others took too much of a run: such a pair says nothing."""
        return any((run.others or 0.0) > QUIET for run in self.runs)

    @property
    def predicted(self) -> float:
        """How much longer the simple plan takes."""
        return self.simple_s / self.default_s - 1

    @property
    def measured(self) -> float:
        """As run: both of a kind together, so that a drift cancels."""
        first, second, third, fourth = (run.measured for run in self.runs)
        return (second + third) / (first + fourth) - 1

    @property
    def scaled(self) -> float:
        """Every request at the speeds at which the machine was profiled."""
        first, second, third, fourth = (run.measured / run.scaled for run in self.runs)
        return (1 + self.predicted) * (second + third) / (first + fourth) - 1

    @property
    def noise(self) -> float:
        """What two executions of one plan differ by, relative: the larger of the two plans' differences, halved because
        each side is the mean of two."""
        first, second, third, fourth = (run.measured for run in self.runs)
        return max(NOISE, abs(first / fourth - 1) / 2, abs(second / third - 1) / 2)

    @property
    def slower(self) -> bool:
        """Whether the default plan took longer, by more than noise."""
        return not self.same and self.measured < -self.noise

    @property
    def unrealised(self) -> bool:
        """Whether too little of a predicted margin was there at the speeds of the profile (rule 7 of measuring)."""
        worth = not self.same and self.predicted >= WORTH
        return worth and self.scaled < REALISED * self.predicted

    def __str__(self) -> str:
        if self.same:
            return f"{self.name:44s} equal: {self.default}"
        if self.disturbed:
            most = max(run.others or 0.0 for run in self.runs)
            return f"{self.name:44s} not measured: others took up to {most:.0%}  {self.default} | {self.simple}"
        figures = f"predicted {self.predicted:+7.1%} measured {self.measured:+7.1%} scaled {self.scaled:+7.1%}"
        marks = ("  SLOWER" if self.slower else "") + ("  less than promised" if self.unrealised else "")
        return f"{self.name:44s} {figures} noise {self.noise:5.1%}  {self.default} | {self.simple}{marks}"


def main() -> int:
    """Do the stages asked for; after the last, 4 where a bar is missed."""
    args = _arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    select_from_environment()
    print_machine()
    questions = list(_questions(args))
    if "plan" in args.stages:
        for question in questions:
            _plan(question, args)
    if "measure" in args.stages:
        _measure(questions, args)
    if "report" not in args.stages:
        return 0
    files = [_file(question, args, "pair") for question in questions]
    pairs = [_read(file) for file in files if file.exists()]
    without = [question.name for question in questions if _file(question, args, "none").exists()]
    return 0 if verdict(pairs, len(questions), without) else 4


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="of Qwen3-0.6B")
    parser.add_argument("--hardware", type=Path, nargs="+", required=True, help="records with a loopback accelerator")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--work", type=Path, default=Path("demo/default-pairs"))
    parser.add_argument("--measure-s", type=float, help="begin no pair after so many seconds (default: all)")
    return parser.parse_args()


def _questions(args: argparse.Namespace) -> Iterator[Question]:
    for work, divided, record, fmt in product(WORKS, (False, True), args.hardware, args.formats):
        yield Question(record, fmt, divided, work)


def _file(question: Question, args: argparse.Namespace, kind: str) -> Path:
    file: Path = args.work / f"{question.name}.{kind}.json"
    return file


def _plan(question: Question, args: argparse.Namespace) -> None:
    """Write the two plans; of one and the same, the pair; where no simple plan fits, a note that says so."""
    asked = question.asked(args.checkpoint)
    simple = min(_simple(asked), key=request_seconds, default=None)
    note = _file(question, args, "none")
    note.unlink(missing_ok=True)
    if simple is None:
        _file(question, args, "pair").unlink(missing_ok=True)
        note.write_text("{}\n")
        print(f"{question.name:44s} {NO_SIMPLE}", flush=True)
        return
    default = ask(strategy="best", **asked)
    for kind, plan in (("default", default), ("simple", simple)):
        _file(question, args, kind).write_text(plan.model_dump_json())
    pair_file = _file(question, args, "pair")
    pair_file.unlink(missing_ok=True)
    if same_plan(default, simple):
        _write(_pair(question, default, simple, ()), pair_file)
    print(f"{question.name:44s} {_said(default)} | {_said(simple)}", flush=True)


def _simple(asked: dict[str, object]) -> Iterator[Plan]:
    """Those that fit."""
    for words in SIMPLE:
        strategy, *options = words.split()
        try:
            yield ask(*options, strategy=strategy, **asked)
        except HelmError:
            continue


def _said(plan: Plan) -> str:
    return f"{1e3 * request_seconds(plan):.0f} ms {plan.label}"


def request_seconds(plan: Plan) -> float:
    """Predicted, of the whole request."""
    assert plan.predicted.request is not None, "a plan of today says it"
    return plan.predicted.request.seconds.mid


def same_plan(one: Plan, other: Plan) -> bool:
    """Whether both do the same, whoever decided it."""
    kept = {"workload", "residence", "kv", "compute", "activations", "schedule"}
    return one.model_dump(include=kept) == other.model_dump(include=kept)


def _measure(questions: Sequence[Question], args: argparse.Namespace) -> None:
    """Run the pairs that were not run yet, and those again that others disturbed."""
    start = time.monotonic()
    for question in questions:
        file = _file(question, args, "pair")
        if _file(question, args, "none").exists() or (file.exists() and not _read(file).disturbed):
            continue
        if args.measure_s is not None and time.monotonic() - start > args.measure_s:
            return
        default, simple = (read_document(Plan, _file(question, args, kind)) for kind in ("default", "simple"))
        for _ in range(ATTEMPTS):
            pair = _pair(question, default, simple, tuple(_in_turns(default, simple, args.checkpoint)))
            if not pair.disturbed:
                break
        _write(pair, file)
        print(pair, flush=True)


def _in_turns(default: Plan, simple: Plan, checkpoint: Path) -> Iterator[Execution]:
    """A B B A, each group with an engine of its own: two of them would share the processors."""
    for plan, times in ((default, 1), (simple, 2), (default, 1)):
        yield from _executions(plan, checkpoint, times)


def _executions(plan: Plan, checkpoint: Path, times: int) -> Iterator[Execution]:
    machine, output = Machine.this(), plan.workload.output_tokens
    request = Request(prompt_of(plan), output, ignore_eos=True)
    with closing(Engine.load(plan, checkpoint, machine)) as engine:
        measured = measure(engine, request, times, machine)
    for run in range(times):
        yield _execution(plan, measured, run)


def _execution(plan: Plan, measured: Measured, run: int) -> Execution:
    """One of the runs alone, with its own probes."""
    generation = measured.runs[run]
    probes = tuple(probe.model_copy(update={"run": 0}) for probe in measured.probes if probe.run == run)
    notes = {
        f"{name.rpartition('.')[0]}.0" if name.endswith(f".{run}") else name: value
        for name, value in measured.notes.items()
    }
    alone = Measured((generation,), probes, notes, measured.past)
    found = check(plan, cost_model(plan), trace(plan, alone), None, TOLERANCE)
    assert found.ttft is not None, "prompts were run"
    scaled = found.ttft.scaled + found.step.scaled * (plan.workload.output_tokens - 1)
    others = measured.notes.get(f"others_cpu_share.{run}")
    seconds = float(generation.moments[-1] - generation.moments[0])
    return Execution(seconds, scaled, None if others is None else float(others))


def _pair(question: Question, default: Plan, simple: Plan, runs: tuple[Execution, ...]) -> Pair:
    seconds = (request_seconds(default), request_seconds(simple))
    return Pair(question.name, default.label, simple.label, *seconds, runs)


def _write(pair: Pair, file: Path) -> None:
    file.write_text(json.dumps(asdict(pair), indent=1) + "\n")


def _read(file: Path) -> Pair:
    content = json.loads(file.read_text())
    return Pair(**{**content, "runs": tuple(Execution(**run) for run in content["runs"])})


def verdict(pairs: Sequence[Pair], asked: int, without: Sequence[str] = ()) -> bool:
    """Print all pairs and what they say together, and whether that is within the bars; `without`: the questions that
    have no simple plan. A disturbed pair is not measured: it is neither slower nor as fast, and misses like one that
    was not run."""
    for pair in pairs:
        print(pair)
    for name in without:
        print(f"{name:44s} {NO_SIMPLE}")
    measured = [pair for pair in pairs if not pair.disturbed]
    run = [pair for pair in measured if not pair.same]
    slower, unrealised = [pair for pair in run if pair.slower], [pair for pair in run if pair.unrealised]
    worth = [pair for pair in run if pair.predicted >= WORTH]
    one_plan, missing = len(measured) - len(run), asked - len(without) - len(measured)
    print(f"{len(measured)} of {asked} pairs: {one_plan} of one plan, {len(run)} run; {len(slower)} slower")
    disturbed = len(pairs) - len(measured)
    print(f"{missing} not measured, {disturbed} of them disturbed; {len(without)} without a simple plan")
    if run:
        noise = median(pair.noise for pair in run)
        print(f"measured margins: median {median(pair.measured for pair in run):+.1%}, noise {noise:.1%}")
    print(f"{len(worth) - len(unrealised)} of {len(worth)} margins of {WORTH:.0%} and more are realised")
    return not missing and not slower and not unrealised


if __name__ == "__main__":
    sys.exit(main())
