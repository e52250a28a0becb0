"""`helm-sim PLAN --requests`: a serving run, a sweep of them, or the maximum rate under an SLO."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import emit, show, write_text
from helmsman.cli.progress import bars
from helmsman.cli.serving_arguments import SEEDS, is_table
from helmsman.cli.serving_pictures import draw_served, draw_swept
from helmsman.schemas.errors import TargetMissedError
from helmsman.schemas.write import whole_file

if TYPE_CHECKING:
    from tqdm import tqdm

    from helmsman.schemas.plan import Plan
    from helmsman.schemas.serving import ServingReport, Slo
    from helmsman.simulator.serving.requests.asking import Asking, Lengths
    from helmsman.simulator.serving.run import Outcome, Setup


@dataclass(frozen=True)
class Question:
    """Who serves, who asks, what is demanded, and what the runs are called."""

    args: argparse.Namespace
    plan_sha256: str
    setup: "Setup"
    asking: "Asking"
    slo: "Slo | None"

    def run(self, setup: "Setup", seed: int, rate: float | None = None, lengths: "Lengths | None" = None) -> "Outcome":
        """One run."""
        from helmsman.schemas.served import ServedInfo
        from helmsman.simulator.serving.requests.asking import AS_THEY_ARE
        from helmsman.simulator.serving.run import serve

        info = ServedInfo(
            source="simulated",
            plan_sha256=self.plan_sha256,
            policy=setup.policy,
            options=dict(setup.options),
            requests=shown(self.args.requests),
            seed=seed,
            replicas=setup.replicas,
            router=setup.router,
        )
        return serve(self.asking.requests(seed, rate, lengths or AS_THEY_ARE), setup, info)


def execute_serving(args: argparse.Namespace, plan: "Plan") -> int:
    """Serve, study, write, print; 4 where a run misses its SLO, or no run of a sweep keeps it."""
    from helmsman.cli.serving_setup import setup_of
    from helmsman.schemas.read import digest
    from helmsman.simulator.serving.requests.arrivals import parse_arrivals
    from helmsman.simulator.serving.requests.asking import asking
    from helmsman.simulator.serving.slo import parse_slo

    slo = None if args.slo is None else parse_slo(args.slo)
    arrivals = None if args.arrivals is None else parse_arrivals(args.arrivals)
    setup = setup_of(args, plan)
    who = asking(args.requests, args.rate, arrivals, args.sort, args.limit)
    question = Question(args, digest(plan), setup, who, slo)
    if args.sweep is not None:
        return _sweep(question)
    return _capacity(question) if args.find_capacity else _serve(question)


def _serve(question: Question) -> int:
    from helmsman.schemas.served import write_served
    from helmsman.simulator.serving.report import report
    from helmsman.simulator.serving.text import report_text, slo_text

    args = question.args
    outcome = question.run(question.setup, args.seed or 0)
    found = report(outcome.served, question.slo, outcome.activity)
    _export(question, outcome, found)
    if args.plot:
        draw_served(args.plot, outcome, found)
    if is_table(args.out):
        with whole_file(args.out) as stream:
            write_served(outcome.served, stream)
        show(args, found.to_json(), lambda: report_text(found))
    else:
        emit(args, found.to_json(), lambda: report_text(found))
    if found.goodput is None or found.goodput.met:
        return 0
    return _missed(args, f"kept by {found.goodput.share:.2%} of the requests: {slo_text(found.goodput.slo)}")


def _missed(args: argparse.Namespace, how: str) -> int:
    """The exit code of a missed SLO; said as an error where there is room for one."""
    if not args.json:
        raise TargetMissedError(how, field="--slo", remedy="lower --rate, add --replicas, or allow more time")
    return TargetMissedError.exit_code


def _export(question: Question, outcome: "Outcome", found: "ServingReport") -> None:
    from helmsman.simulator.serving.exports import aiperf_records, vllm_bench

    args = question.args
    if args.export_vllm:
        write_text(args.export_vllm, json.dumps(vllm_bench(outcome.served, found), allow_nan=False) + "\n")
    if args.export_aiperf:
        records = (json.dumps(record, allow_nan=False) for record in aiperf_records(outcome.served))
        write_text(args.export_aiperf, "".join(f"{record}\n" for record in records))


def _sweep(question: Question) -> int:
    from helmsman.cli.serving_setup import policies, with_cpu_bandwidth, with_policy
    from helmsman.simulator.serving.report import report
    from helmsman.simulator.serving.requests.asking import Lengths
    from helmsman.simulator.serving.sweep import keeps_somewhere, parse_sweep, sweep
    from helmsman.simulator.serving.text import slo_text, sweep_text

    args, asked = question.args, parse_sweep(question.args.sweep)
    names = policies(args)
    setups = {name: with_policy(question.setup, name, "--policy") for name in names}
    if args.relative_to is not None:
        setups[args.relative_to] = with_policy(question.setup, args.relative_to)
    bar = _progress(args, len(asked.values) * len(setups))

    def run(value: float, policy: str) -> "ServingReport":
        setup = setups[policy]
        setup = with_cpu_bandwidth(setup, value) if asked.over == "cpu-bandwidth" else setup
        rate = value if asked.over == "rate" else None
        tokens = round(value)
        lengths = {"input": Lengths(prompt=tokens), "output": Lengths(output=tokens)}.get(asked.over)
        outcome = question.run(setup, args.seed or 0, rate, lengths)
        bar.update()
        return report(outcome.served, question.slo, outcome.activity)

    with bar:
        found = sweep(asked, names, run, args.relative_to)
    if args.plot:
        draw_swept(args.plot, found)
    emit(args, found.to_json(), lambda: sweep_text(found))
    if question.slo is None or keeps_somewhere(found, names):
        return 0
    return _missed(args, f"no point of the sweep keeps it: {slo_text(question.slo)}")


def _capacity(question: Question) -> int:
    from helmsman.schemas.served import FINISHED
    from helmsman.schemas.serving import ServingCapacity
    from helmsman.simulator.serving.capacity import find_capacity
    from helmsman.simulator.serving.metrics import goodput
    from helmsman.simulator.serving.report import duration_of
    from helmsman.simulator.serving.text import capacity_text

    args, slo = question.args, question.slo
    assert slo is not None
    together = question.run(question.setup, args.seed or 0)
    finished = int((together.served.status == FINISHED).sum())
    guess = max(1, finished) / max(duration_of(together.served), 1e-9)

    bar = _progress(args, None)

    def keeps(rate: float, seed: int) -> bool:
        served = question.run(question.setup, seed, rate).served
        bar.update()
        return goodput(served, slo, duration_of(served)).met

    first, seeds = args.seed or 0, (args.seeds or SEEDS) if question.asking.drawn else 1
    with bar:
        found = find_capacity(keeps, guess, range(first, first + seeds))
    document = ServingCapacity(
        run=together.served.info,
        slo=slo,
        rate=found.rate,
        low=found.low,
        high=found.high,
        runs=found.runs,
        seeds=found.seeds,
    )
    emit(args, document.to_json(), lambda: capacity_text(document))
    return 0


def _progress(args: argparse.Namespace, runs: int | None) -> "tqdm[None]":
    """A bar over runs, on a terminal and after a second only."""
    hidden = True if args.quiet or args.json else None
    return bars()(total=runs, desc="serve", unit="run", delay=1.0, disable=hidden, leave=False)


def shown(source: str) -> str:
    """The name of a file, or the line, as documents may hold it."""
    name = source if source.startswith("synthetic:") else Path(source).name
    return "".join(letter for letter in name if letter.isprintable())[:200] or "requests"
