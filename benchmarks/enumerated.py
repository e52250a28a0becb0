"""Capacities and costs of studies beside enumeration: every number of users served, every machine's cost worked out.

    python -m benchmarks.enumerated

Twenty small studies are drawn: a model on three machines, with lengths, limits, times of thinking and prices of their
own. On the first machine every number of users is served, up to `_FURTHEST` more than the study says, with the draws
and the requests of its search. The study has to name the number that enumeration does: the one that more than half of
the draws keep, each of them up to the first number that it misses. Of a draw that misses the limits with some number
and keeps them with a larger one, a search may meet a later loss: such studies are counted apart. The cheapest machine
has to be that of the costs as docs/studies.md defines them, of rates that are asked one by one. Exit code 4 where one
differs otherwise."""

import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import helmsman
from benchmarks.machine import print_machine
from helmsman.analysis.ask_serving import study_of
from helmsman.analysis.capacity_trials import no_trials_yet
from helmsman.library_questions import serving_question
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import Plan
from helmsman.schemas.serving import ServingCount
from helmsman.schemas.study_report import StudyReport
from helmsman.schemas.study_row import StudyRow
from helmsman.simulator.serving.requests.request_source import Variation

STUDIES = 20
MODELS = ("Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B", "Qwen3-8B")
MACHINES = ("rtx4060-laptop", "rtx3060-5600x", "rtx4060ti-13600k", "rtx3090-5950x", "rtx3070-3700x")
_FURTHEST = 12
"""Users beyond those of the study that are served as well."""
_HOURS = 3.0 * 8766.0
"""Hours of use that a price is divided by where a study says nothing."""
MISSED = 4


@dataclass(frozen=True)
class SmallStudy:
    """A study of one model on some machines, as its file says it."""

    content: dict[str, Any]

    @classmethod
    def drawn(cls, seed: int) -> "SmallStudy":
        """Return one of the twenty."""
        draw = random.Random(seed)
        machines = draw.sample(MACHINES, 3)
        lengths = f"input={draw.choice((200, 500, 1000))},output={draw.choice((30, 60, 120))}"
        return cls(
            {
                "models": draw.choice(MODELS),
                "machines": machines,
                "formats": draw.choice(("q4_k", "q8_0")),
                "strategies": "vllm",
                "slo": draw.choice(("ttft=1s,tpot=60ms,share=0.9", "ttft=2s,tpot=100ms,share=0.9")),
                "serving": {
                    "requests": f"synthetic:n=100,{lengths}",
                    "policies": draw.choice(("gpu-only", "neo")),
                    "think": f"{draw.choice((1, 2, 4))}s",
                },
                "prices": {
                    "machines": {name: float(draw.randrange(500, 3000, 50)) for name in machines},
                    "watts": {name: float(draw.randrange(100, 500, 10)) for name in machines},
                    "energy": 0.3,
                },
                "sensitivity": 0,
            }
        )

    def plan(self, machine: str) -> Plan:
        """Return the plan that serves on a machine."""
        names = {"model": "models", "format": "formats", "strategy": "strategies"}
        question = {name: self.content[field] for name, field in names.items()}
        return helmsman.plan({**question, "hardware": machine}).plan

    @property
    def served(self) -> dict[str, Any]:
        """Return the question about a plan that serves, for whatever is to be found."""
        serving = self.content["serving"]
        return {"requests": serving["requests"], "policy": serving["policies"], "slo": self.content["slo"]}

    def cost(self, machine: str, plan: Plan) -> float | None:
        """Return what a million output tokens cost on a machine at its highest rate; None where no rate is kept."""
        try:
            rate = helmsman.find_capacity(plan, self.served).rate
        except InfeasibleError:
            return None
        throughput = helmsman.serve_simulation(plan, {**self.served, "rate": rate}).throughput
        prices = self.content["prices"]
        hourly = prices["machines"][machine] / _HOURS + prices["watts"][machine] / 1000.0 * prices["energy"]
        return float(hourly / (rate * throughput.output_tokens / throughput.requests * 3600.0) * 1e6)


@dataclass(frozen=True)
class Enumerated:
    """Users that more than half of the draws keep up to the first number that each misses, and whether the search's own
    number of each draw is one before a loss."""

    users: int
    before_losses: bool


def enumerated(small: SmallStudy, plan: Plan, answer: ServingCount) -> Enumerated:
    """Return what serving every number of users, with the draws of an answer, comes to."""
    question = {**small.served, "think": small.content["serving"]["think"]}
    trials = no_trials_yet(study_of(plan, serving_question(question)).with_users(1), lambda: None)
    last = max(draw.keeps for draw in answer.seeds) + _FURTHEST

    def keeps(users: int, seed: int) -> bool:
        return trials.keeps(trials.study.setup, seed, Variation(users=users, count=answer.requests))

    kept = [[keeps(users, draw.seed) for users in range(1, last + 1)] for draw in answer.seeds]
    counts = sorted((row.index(False) for row in kept), reverse=True)
    pairs = zip(kept, answer.seeds, strict=True)
    losses = (row[draw.keeps - 1] and not row[draw.keeps] for row, draw in pairs)
    return Enumerated(counts[len(counts) // 2], all(losses))


def row_of(report: StudyReport, machine: str) -> StudyRow:
    """Return the row of a machine."""
    return next(row for row in report.rows if row.machine == machine)


def compared_users(small: SmallStudy, machine: str, row: StudyRow, plan: Plan) -> str:
    """Return how a study's number of users compares with enumeration: equal, a later loss, or wrong; and say so."""
    try:
        answer = helmsman.find_users(plan, {**small.served, "think": small.content["serving"]["think"]})
    except InfeasibleError as error:
        print(f"  {machine}: {row.users} users in the study; {error}")
        return "equal" if row.users == 0 else "wrong"
    known = enumerated(small, plan, answer)
    print(f"  {machine}: {row.users} users in the study, {known.users} by enumeration of {len(answer.seeds)} draws")
    if row.users == known.users:
        return "equal"
    return "a later loss" if row.users == answer.count and known.before_losses else "wrong"


def main() -> int:
    """Ask and enumerate all of them; say where they differ."""
    print_machine()
    begin, users, costs = time.process_time(), Counter[str](), 0
    for seed in range(STUDIES):
        small = SmallStudy.drawn(seed)
        report = helmsman.study(small.content)
        print(f"{seed}: {small.content['models']}, {small.content['serving']}, {small.content['slo']}")
        plans = {machine: small.plan(machine) for machine in small.content["machines"] if row_of(report, machine).plan}
        machine, plan = next(iter(plans.items()))
        users[compared_users(small, machine, row_of(report, machine), plan)] += 1
        known = {machine: small.cost(machine, plan) for machine, plan in plans.items()}
        priced = {machine: cost for machine, cost in known.items() if cost is not None}
        cheapest = [report.rows[number].machine for number in report.cheapest]
        expected = [min(priced, key=lambda machine: priced[machine])] if priced else []
        costs += cheapest == expected
        print(f"  cheapest: {cheapest} in the study, {expected} by enumeration")
    print(f"users: {dict(users)}; cheapest: {costs} of {STUDIES}")
    print(f"{time.process_time() - begin:.0f} s of CPU")
    return MISSED if users["wrong"] or costs < STUDIES else 0


if __name__ == "__main__":
    sys.exit(main())
