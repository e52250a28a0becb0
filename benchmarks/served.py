"""Requests served for real against the same requests simulated, policy by policy, on this machine.

    python -m benchmarks.served PLAN --checkpoint DIR --requests AzureLLMInferenceTrace_conv_2023.csv

The plan has everything on one accelerator. Lengths are those of the trace, divided and cut to what a small cache takes,
arrivals a Poisson process. For each policy helm-serve is started and the requests are replayed against it; then tokens
of some are compared with those of the same requests alone, where the two likeliest are not closer than rounding (rule 8
of measuring); benchmarks.served_alone compares those of all requests that `--out` kept. Simulations have the speeds
that probes before, beside and after the run read (rule 7); those of the record are printed beside them. Exit code 4
where throughput or TPOT is beyond the tolerance, tokens differ, or no policy serves as many times the tokens of the
first one as it must."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.machine import print_machine
from benchmarks.served_alone import Agreement, Answer, agreement, keep
from benchmarks.served_run import Load, serving
from benchmarks.speeds import Speeds, at_speeds, computing
from helmsman.analysis.ask_serving import setup_of
from helmsman.analysis.served_comparison import compare_served, served_table
from helmsman.cli.documents import read_plan
from helmsman.cli.isa import select_from_environment
from helmsman.cli.serve import build_parser
from helmsman.cli.serving_setup import setting_of
from helmsman.executor.measuring.prober import middle
from helmsman.executor.passes.phase_pass import passes_of
from helmsman.executor.serving.places import places_of
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.requests import Ints, Requests, make_requests
from helmsman.schemas.served_comparison import ServedComparison
from helmsman.schemas.served_table import ServedInfo, ServedTable, write_served
from helmsman.service.inference.load.prompts import id_prompts
from helmsman.service.inference.load.replay_table import table_of_replay
from helmsman.simulator.serving.requests.arrivals import Arrivals, draw_arrivals
from helmsman.simulator.serving.requests.read import read_requests
from helmsman.simulator.serving.run import Setup, serve

JUDGED = ("throughput", "tpot")
TOLERANCE = 0.15
GAIN, SIMULATED_GAIN = 1.2, 1.3
OPTIONS = "--gpu-tokens 80 --cpu-tokens 8192 --batch-tokens 128 --chunk 64 --sequences 16 --promise 1e4"
"""Of five blocks two requests take two each, and at least one that is growing three: no third has room beside them."""


@dataclass(frozen=True)
class Shortened:
    """Tokens of a trace over `divisor`, but at least `least` and at most `most`."""

    divisor: float
    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> "Shortened":
        """`divisor,least,most`."""
        divisor, least, most = text.split(",")
        return cls(float(divisor), int(least), int(most))

    def of(self, tokens: Ints) -> Ints:
        """The shorter lengths."""
        return np.clip(np.round(tokens / self.divisor), self.least, self.most).astype(np.int64)


@dataclass(frozen=True)
class Run:
    """A policy's run beside its simulation at the same speeds (`scaled`) and at those of the record (`raw`)."""

    policy: str
    scaled: ServedComparison
    raw: ServedComparison
    tokens: Agreement

    @property
    def simulated(self) -> float:
        """Output tokens a second."""
        return self.scaled.figures[0].simulated or 0.0

    @property
    def served(self) -> float:
        """Output tokens a second."""
        return self.scaled.figures[0].measured or 0.0

    @property
    def holds(self) -> bool:
        """Whether it is what was simulated, and gives the tokens of requests served alone."""
        return self.scaled.passed and self.tokens.holds


def main() -> int:
    """Serve under every policy; 4 where a bar is missed."""
    args = _arguments()
    select_from_environment()
    print_machine()
    plan, requests = read_plan(args.plan), _requests(args)
    speeds = Speeds(plan, places_of(plan, passes_of(plan)).resources)
    runs = []
    for policy in args.policies:
        runs.append(_run(args, plan, requests, policy, speeds))
        print(flush=True)
    return 0 if _verdict(runs) else 4


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--requests", required=True)
    parser.add_argument("--policies", nargs="+", default=["gpu-only", "neo", "apex"], help="the first is the baseline")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second: more than any policy serves")
    parser.add_argument("--prompt", type=Shortened.parse, default=Shortened(40.0, 17, 40))
    parser.add_argument("--output", type=Shortened.parse, default=Shortened(28.0, 3, 12))
    parser.add_argument("--serve", default=OPTIONS, help=f"options of helm-serve (default: {OPTIONS})")
    parser.add_argument("--sample", type=int, default=20, help="requests whose tokens are compared at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the tables")
    return parser.parse_args()


def _requests(args: argparse.Namespace) -> Requests:
    found = read_requests(args.requests)
    arrivals = draw_arrivals(Arrivals("poisson"), args.limit, args.rate, args.seed)
    lengths = found.prompt_tokens[: args.limit], found.output_tokens[: args.limit]
    return make_requests(arrivals, args.prompt.of(lengths[0]), args.output.of(lengths[1]))


def _run(args: argparse.Namespace, plan: Plan, requests: Requests, policy: str, speeds: Speeds) -> Run:
    before, options = speeds.now(), ["--policy", policy, *args.serve.split()]
    with serving(args.plan, args.checkpoint, options) as server, speeds.beside() as rates:
        load = server.load(requests, args.seed)
    now, factors = at_speeds(plan, computing(middle([before, speeds.now()]), rates))
    info = _info(args, plan, policy, "measured").model_copy(update={"notes": load.notes})
    served = table_of_replay(requests, load.replayed, info)
    known = _setup(args, plan, options)
    simulated, raw = (
        serve(requests, replace(known, cost=_setup(args, each, options).cost), _info(args, plan, policy, "simulated"))
        for each in (now, plan)
    )
    answers = list(_answers(args, requests, load))
    _keep(args.out, policy, answers, simulated=simulated.served, served=served)
    compared, unscaled = (
        compare_served(digest(plan), each.served, served, TOLERANCE, JUDGED) for each in (simulated, raw)
    )
    sample = [answers[row] for row in np.linspace(0, len(answers) - 1, min(args.sample, len(answers))).astype(int)]
    found = Run(policy, compared, unscaled, agreement(plan, args.checkpoint, sample))
    _tell(found, factors, load)
    return found


def _setup(args: argparse.Namespace, plan: Plan, options: Sequence[str]) -> Setup:
    """What helm-serve has with these options."""
    words = build_parser().parse_args([str(args.plan), "--checkpoint", str(args.checkpoint), *options])
    return setup_of(plan, setting_of(words))


def _info(args: argparse.Namespace, plan: Plan, policy: str, source: str) -> ServedInfo:
    return ServedInfo.model_validate(
        {
            "source": source,
            "plan_sha256": digest(plan),
            "policy": policy,
            "requests": Path(args.requests).name,
            "seed": args.seed,
        }
    )


def _answers(args: argparse.Namespace, requests: Requests, load: Load) -> Iterator[Answer]:
    """Of all requests that got tokens."""
    prompt = id_prompts(requests, args.seed)
    for row, observed in enumerate(load.replayed.observed):
        if observed.tokens:
            yield Answer(tuple(prompt(row)), tuple(observed.tokens))


def _keep(folder: Path | None, policy: str, answers: Sequence[Answer], **tables: ServedTable) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        keep(answers, folder / f"{policy}-answers.jsonl")
        for source, table in tables.items():
            with (folder / f"{policy}-{source}.parquet").open("wb") as stream:
                write_served(table, stream)


def _tell(run: Run, factors: dict[str, float], load: Load) -> None:
    print(served_table(run.scaled))
    raw = ", ".join(
        f"{each.what} {each.error:+.1%}" for each in run.raw.figures if each.judged and each.error is not None
    )
    print(f"at the record's speeds: {raw}")
    print("speed now    " + ", ".join(f"{name} {factor:.2f}" for name, factor in factors.items()))
    shares = (
        f"{what} {seconds / load.seconds:.2f}"
        for what, seconds in (("server", load.server_s), ("client", load.client_s))
    )
    print(f"CPUs         {', '.join(shares)}")
    print(f"tokens       {run.tokens}", flush=True)


def _verdict(runs: Sequence[Run]) -> bool:
    """Print what policies gain over the first, and whether all is as it must be."""
    base, gained, must = runs[0], False, False
    for run in runs:
        simulated, served = run.simulated / base.simulated, run.served / base.served
        must |= simulated >= SIMULATED_GAIN
        gained |= simulated >= SIMULATED_GAIN and served >= GAIN
        print(f"{run.policy:<16}{run.simulated:>8.2f} {run.served:>8.2f} tok/s   x{simulated:.2f} x{served:.2f}")
    return all(run.holds for run in runs) and gained == must


if __name__ == "__main__":
    sys.exit(main())
