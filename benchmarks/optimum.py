"""Whether `optimal` is the best of all strategies, and how tight its proofs are: `python -m benchmarks.optimum`.

Random questions (a dense model of the catalogue on a machine of hwdb, prompts of 128 to 2048 tokens, outputs of 32 to
512, batches of 1 to 32, most of them 1; decode steps, or whole requests; with `--few` outputs of 1 to 32, and the
prompt pass or whole requests) that at least one strategy has a plan for. All
strategies are asked under the same software, op-split with fused attention and FlexGen with attention on the host too;
every plan is lowered and *simulated*, with contention, and what is compared is simulated seconds. Bars, of 200 cases:

- no strategy's plan is faster than that of `optimal`, and there is none where `optimal` has none;
- `optimal` is more than 2 % faster than all others in at least 20;
- the gap that the plan states is at most 1 % in at least 95 % of them, and nobody's plan is faster than its bound.

Prints a line as each case is done, then the cases that break the first bar, the gaps above 1 %, the cases won, and CPU
seconds of a decision of `optimal` in a process that has made one before. Exits 4 where a bar is missed."""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from multiprocessing import Pool
from typing import Any

from benchmarks.dense_models import dense_names
from benchmarks.machine import print_machine
from helmsman.hwdb.load_hardware import load_hardware, system_names
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import batches_together
from helmsman.planner.cost.footprint import at_footprint
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.cost.table_prices import table_prices
from helmsman.planner.decide import decide
from helmsman.planner.options import offered
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.registry import OF_DENSE, method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.optimal.aims import aim_of
from helmsman.scheduler.iteration import Iteration, prefill
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.objective import Objective
from helmsman.schemas.plan import Certificate, Plan
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay
from helmsman.timing.works import apart

OURS = "optimal"
RIVALS: dict[str, tuple[str, dict[str, object]]] = {name: (name, {}) for name in OF_DENSE if name != OURS} | {
    "op-split --fused-attention": ("op-split", {"fused_attention": True}),
    "flexgen --cpu-compute": ("flexgen", {"cpu_compute": True}),
}
"""Strategies and options with which `optimal` is compared, by how the command line writes them."""

FEW = (1, 2, 8, 32)
"""Outputs of `--few`: prompts count."""

PROMPTS, OUTPUTS = (128, 256, 512, 1024, 2048), (32, 64, 128, 256, 512)
BATCHES = (1, 1, 1, 1, 1, 1, 2, 4, 8, 16, 32)
OBJECTIVES: tuple[Objective, ...] = ("latency", "latency", "latency", "throughput")
PROMPT_OBJECTIVES: tuple[Objective, ...] = ("ttft", "throughput")

CASES, WON, TIGHT = 200, 20, 0.95
"""Of so many cases so many are won, and this share of all has a small gap."""

MARGIN, GAP, ROUNDING = 0.02, 0.01, 1e-9


@dataclass(frozen=True)
class Question:
    """What all strategies are asked."""

    model: str
    machine: str
    prompt: int
    output: int
    batch: int
    objective: Objective

    @property
    def arguments(self) -> str:
        """Of helm-plan."""
        sizes = f"--prompt-tokens {self.prompt} --output-tokens {self.output} --batch {self.batch}"
        return f"--model {self.model} --hw {self.machine} {sizes} --format f16 --objective {self.objective}"

    def request(self, strategy: str, options: dict[str, object]) -> PlanRequest[Any]:
        """The question to a strategy, under the software of the machine's record."""
        work = Workload(
            prompt_tokens=self.prompt, output_tokens=self.output, batch=self.batch, context=self.prompt + self.output
        )
        kind = method(strategy).options
        same = {"same_software": True} if "same_software" in offered(kind) else {}
        model, machine = load_model(self.model), load_hardware(self.machine, None)
        return PlanRequest(model, machine, work, strategy, kind(**options, **same), objective=self.objective)


@dataclass(frozen=True)
class Answer:
    """A plan's seconds under the objective, as predicted and as simulated."""

    label: str
    predicted: float
    simulated: float


@dataclass(frozen=True)
class Case:
    """`ours`: of `optimal`, None where it has no plan; `others`: of those that have one; `cpu`: seconds that the
    decision of `optimal` took."""

    number: int
    question: Question
    ours: Answer | None
    others: dict[str, Answer]
    proof: Certificate | None
    cpu: float

    @property
    def best(self) -> str | None:
        """The fastest of the others."""
        return min(self.others, key=lambda name: self.others[name].simulated, default=None)

    @property
    def ratio(self) -> float:
        """Seconds of `optimal` over those of the best of the others; 0 where only `optimal` has a plan."""
        if self.ours is None:
            return float("inf")
        return self.ours.simulated / self.others[self.best].simulated if self.best else 0.0

    @property
    def worse(self) -> bool:
        return self.ratio > 1 + ROUNDING

    @property
    def won(self) -> bool:
        return self.best is not None and self.ratio < 1 - MARGIN

    @property
    def gap(self) -> float:
        """As stated."""
        return self.proof.gap if self.proof else float("inf")

    @property
    def refuted(self) -> bool:
        """Whether a plan is faster than the bound that `optimal` states."""
        best = self.others[self.best].simulated if self.best else float("inf")
        return self.proof is not None and best < self.proof.lower_bound * (1 - ROUNDING)

    def __str__(self) -> str:
        ours = f"{1e3 * self.ours.simulated:11.3f} ms gap {self.gap:6.2%}" if self.ours else "no plan"
        mark = "WORSE" if self.worse else "won" if self.won else ""
        best = f"{1e3 * self.others[self.best].simulated:11.3f} ms {self.best}" if self.best else "no other"
        return f"{self.number:4d} {self.question.arguments:<104} {ours:<26} {self.cpu:5.2f} s | {best} {mark}"

    def lost(self) -> Iterator[str]:
        """What `optimal` has, and every plan that is faster."""
        ours = self.ours
        for name, each in {OURS: ours, **self.others}.items():
            if each is not None and (each is ours or ours is None or each.simulated < ours.simulated):
                times = f"{1e3 * each.simulated:.3f} ms (predicted {1e3 * each.predicted:.3f} ms)"
                yield f"     {name}: {times} {each.label}"


def main() -> int:
    """Ask, print, compare with the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=CASES, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    text = f"outputs of {FEW}, objectives {PROMPT_OBJECTIVES}: what prompts take counts"
    parser.add_argument("--few", action="store_true", help=text)
    args = parser.parse_args()
    print_machine()
    cases = []
    with Pool(args.jobs) as pool:
        numbers = range(args.first, args.first + args.cases)
        for case in pool.imap_unordered(partial(found, args.seed, args.few), numbers):
            print("\n".join([str(case), *(case.lost() if case.worse else ())]), flush=True)
            cases.append(case)
    return _summary(sorted(cases, key=lambda each: each.number))


def found(seed: int, few: bool, number: int) -> Case:
    """The first of random questions that any strategy has a plan for."""
    _warm()
    for attempt in count():
        case = _case(number, drawn(random.Random(f"{seed} {number} {attempt}"), few))
        if case.ours is not None or case.others:
            return case
    raise AssertionError("unreachable")


def drawn(chosen: random.Random, few: bool = False) -> Question:
    """A question about a prompt and an output that the model has room for; `few` outputs, so that prompts count."""
    model, machine = chosen.choice(dense_names()), chosen.choice(system_names())
    longest = load_model(model).max_context
    prompt, output = chosen.choice(PROMPTS), chosen.choice(FEW if few else OUTPUTS)
    batch, objective = chosen.choice(BATCHES), chosen.choice(PROMPT_OBJECTIVES if few else OBJECTIVES)
    return Question(model, machine, min(prompt, longest - output), output, batch, objective)


def _case(number: int, question: Question) -> Case:
    began = time.process_time()
    plan = _planned(question, OURS, {})
    cpu = time.process_time() - began
    rivals = {name: _planned(question, of, options) for name, (of, options) in RIVALS.items()}
    others = {name: _answer(each, question.objective) for name, each in rivals.items() if each is not None}
    ours = None if plan is None else _answer(plan, question.objective)
    return Case(number, question, ours, others, plan.certificate if plan else None, cpu)


def _planned(question: Question, strategy: str, options: dict[str, object]) -> Plan | None:
    """A plan, if there is one."""
    try:
        return decide(question.request(strategy, options)).plan
    except (InfeasibleError, UsageError):
        return None


def _answer(plan: Plan, objective: Objective) -> Answer:
    work, together, predicted = plan.workload, batches_together(plan), plan.predicted
    weights = aim_of(objective, work).weights
    told = {"prefill": predicted.prefill.seconds.mid, "decode": predicted.decode.seconds.mid}
    passes = {"prefill": prefill(work, together), "decode": mean_step(work, together)}
    took = {phase: _simulated(plan, passes[phase]) for phase in weights}
    return Answer(plan.label, *(sum(weights[phase] * of[phase] for phase in weights) for of in (told, took)))


def _simulated(plan: Plan, iteration: Iteration) -> float:
    """Seconds of a pass, replayed with contention and the time between tasks and passes."""
    costs = CostModel(at_footprint(plan), CostOptions(), table_prices(plan))
    graph, between = lower(plan, iteration), costs.between()
    done = replay(graph, lambda task: costs.price(task).mid, costs.hardware, costs.slowed(), between)
    return done.makespan + between.begins(apart(graph))


@lru_cache(maxsize=1)
def _warm() -> None:
    """Make one decision, so that others are of a process that has everything loaded."""
    _planned(Question("Qwen3-8B", "rtx4060-laptop", 128, 128, 1, "latency"), OURS, {})


def _summary(cases: Sequence[Case]) -> int:
    worse, won = [each for each in cases if each.worse], [each for each in cases if each.won]
    tight = [each for each in cases if each.gap <= GAP]
    refuted = [each for each in cases if each.refuted]
    _listed("worse than another", worse)
    _listed("a plan is faster than the bound", refuted)
    _listed(f"gaps above {GAP:.0%}", sorted((each for each in cases if each.gap > GAP), key=lambda each: -each.gap))
    _listed(f"more than {MARGIN:.0%} faster than all others", won)
    cpu = sorted(each.cpu for each in cases)
    within = ", ".join(f"<= {limit:.0%}: {_share(cases, limit):.1%}" for limit in (0.01, 0.02, 0.05))
    print(f"\n{len(cases)} cases: worse in {len(worse)}, more than {MARGIN:.0%} faster in {len(won)}; gaps {within}")
    print(
        f"CPU s a decision: median {statistics.median(cpu):.2f}, p90 {cpu[int(0.9 * len(cpu))]:.2f}, max {cpu[-1]:.2f}"
    )
    apart = max((abs(each.ours.simulated / each.ours.predicted - 1) for each in cases if each.ours), default=0.0)
    print(f"simulated and predicted seconds of optimal differ by at most {apart:.2%}")
    missed = worse or refuted or len(won) * CASES < WON * len(cases) or len(tight) < TIGHT * len(cases)
    return 4 if missed else 0


def _listed(what: str, cases: Sequence[Case]) -> None:
    print(f"\n{what}: {len(cases)}")
    for each in cases:
        print("\n".join([str(each), *(each.lost() if each.worse else ())]))


def _share(cases: Sequence[Case], limit: float) -> float:
    """Of the cases, those whose stated gap is at most `limit`."""
    return sum(each.gap <= limit for each in cases) / len(cases)


if __name__ == "__main__":
    sys.exit(main())
