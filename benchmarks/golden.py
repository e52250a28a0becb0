"""Golden results: whether a change of the code changed an answer. Every strategy is asked fixed questions, its plans
are replayed, and requests are served in virtual time under every policy; each result is kept as a digest.

    python -m benchmarks.golden record FILE [--questions 24] [--jobs 2]
    python -m benchmarks.golden compare FILE [--jobs 2]

`record` writes one line of JSON a result: its name, what it says (a plan's label, or the error), seconds of the
objective, and the SHA-256 of the whole document. `compare` asks again, as many questions as FILE has, prints every
result that differs and how (bytes, seconds, what it says), and exits 4 if any does. Digests are of every bit of every
number: compare on the kind of machine that recorded, of which the first line tells."""

import argparse
import json
import random
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from io import StringIO
from multiprocessing import Pool
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.asking import ask
from benchmarks.random_questions import drawn
from helmsman.cli.sim import main as sim_command
from helmsman.executor.measuring.host_facts import facts_here
from helmsman.executor.system.machine import Machine
from helmsman.lowering.placement import batches_together
from helmsman.planner.prediction.objective import objective_seconds
from helmsman.planner.registry import OF_DENSE, RECOMMENDED
from helmsman.scheduler.policies import POLICIES
from helmsman.schemas.errors import HelmError

SEED = 23
QUESTIONS = 24
SERVED = (
    ("Qwen3-8B", "a10g-g5.4xlarge", "synthetic:n=200,input=600,output=120,rate=1.5"),
    ("Llama-3.1-8B", "h100-hgx", "synthetic:n=300,input=1500,output=200,rate=6"),
)
"""Model, machine and requests of served runs."""


@dataclass(frozen=True)
class Result:
    """One answer; `says`: a plan's label or the error; `seconds`: of the objective, 0 for an error; `sha256`: of the
    document's bytes."""

    name: str
    says: str
    seconds: float
    sha256: str


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--questions", type=int, default=QUESTIONS, metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    args = parser.parse_args()
    if args.action == "record":
        lines = [{"machine": str(facts_here(Machine.this())), "questions": args.questions}, *map(asdict, results(args))]
        args.file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return 0
    head, *lines = map(json.loads, args.file.read_text().splitlines())
    args.questions = head["questions"]
    print(f"recorded on {head['machine']}")
    return _compare({line["name"]: Result(**line) for line in lines}, list(results(args)))


def results(args: argparse.Namespace) -> list[Result]:
    """All results, in an order of their own."""
    served = [(*run, policy) for run in SERVED for policy in POLICIES]
    with Pool(args.jobs) as pool:
        plans = pool.imap(plans_of, range(args.questions))
        runs = pool.imap(served_by, served)
        return [result for some in (*plans, *runs) for result in some]


def _compare(recorded: dict[str, Result], results: list[Result]) -> int:
    """Print what differs; 4 if anything does."""
    now = {result.name: result for result in results}
    differing = [name for name in {**recorded, **now} if recorded.get(name) != now.get(name)]
    for name in differing:
        print(f"{name}: {_difference(recorded.get(name), now.get(name))}")
    print(f"{len(now)} results, {len(differing)} differ")
    return 4 if differing else 0


def _difference(before: Result | None, after: Result | None) -> str:
    if before is None or after is None:
        return "new" if before is None else "gone"
    if before.says != after.says:
        return f"{before.says!r}, {before.seconds!r} s -> {after.says!r}, {after.seconds!r} s"
    if before.seconds != after.seconds:
        return f"{before.seconds!r} -> {after.seconds!r} s ({after.seconds / before.seconds - 1:+.2%})"
    return "the same label and seconds, other bytes"


def plans_of(number: int) -> list[Result]:
    """Every strategy's plan for a question, and the replay of its steps."""
    with TemporaryDirectory() as folder:
        question = drawn(random.Random(f"{SEED} {number}"), Path(folder))
        results_of = partial(_planned, number, shlex.split(question.line("", "")), Path(folder))
        return [result for strategy in (RECOMMENDED, *OF_DENSE) for result in results_of(strategy)]


def _planned(number: int, words: list[str], folder: Path, strategy: str) -> Iterator[Result]:
    name = f"question {number} {strategy}"
    try:
        plan = ask(*words, strategy=strategy)
    except HelmError as error:
        yield _result(name, str(error).replace(str(folder), ""), 0.0, "")
        return
    objective = plan.strategy.options.get("objective", "request")
    took = objective_seconds(plan.predicted, plan.workload, batches_together(plan), objective).mid
    yield _result(name, plan.label, took, plan.to_json())
    file = folder / "plan.json"
    file.write_text(plan.to_json())
    trace = folder / "trace.parquet"
    report = _simulated(file, "--steps", "2", "--trace", str(trace))
    yield _result(f"{name} replayed", "", 0.0, report + sha256(trace.read_bytes()).hexdigest())


def served_by(run: tuple[str, str, str, str]) -> list[Result]:
    """A served run under a policy."""
    model, machine, requests, policy = run
    with TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        plan = ask(model=model, hw=machine, strategy="llama-cpp", prompt_tokens=512, output_tokens=128, batch=8)
        file.write_text(plan.to_json())
        text = _simulated(file, "--requests", requests, "--policy", policy)
    return [_result(f"served {model} {machine} {policy}", "", 0.0, text)]


def _simulated(file: Path, *words: str) -> str:
    """Return the JSON that helm-sim prints, or its error."""
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        sim_command([str(file), *words, "--json"])
    return said.getvalue().replace(str(file.parent), "")


def _result(name: str, says: str, seconds: float, text: str) -> Result:
    return Result(name, says, seconds, sha256(text.encode()).hexdigest())


if __name__ == "__main__":
    sys.exit(main())
