"""HeteGen's division of linear layers: closed form against enumeration and simulation, memory, refusals."""

import random
from dataclasses import replace

import pytest
from questions import LAPTOP, SERVER, asked, simulated
from seeds import seeds
from together import together

from helmsman.lowering.lower import lower
from helmsman.lowering.operation import PANEL
from helmsman.lowering.ops import op_extent
from helmsman.planner.checks.accept import accept
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.hetegen import HeteGen, shared_matrices
from helmsman.planner.strategies.streaming.divided_rows import Division, place
from helmsman.planner.strategies.streaming.shared_rows import RowCost, Shared
from helmsman.scheduler.iteration import PHASES, prefill
from helmsman.schemas.errors import InfeasibleError, UsageError


@together("seed", seeds(range(200), 40))
def test_the_closed_form_is_the_best_of_all_panels(seed):
    rng = random.Random(seed)
    rows = PANEL * rng.randint(1, 60) + rng.choice([0, 0, 5])
    lines = [RowCost(rng.choice([0, rng.uniform(0, 1e-4)]), rng.uniform(1e-8, 1e-6)) for _ in range(2)]
    shared = Shared(rows, *lines, RowCost(0, 1e-9), rng.choice([0, rng.uniform(-2e-4, 2e-4)]))
    panels = {*range(0, rows, PANEL), rows}
    assert shared.brought in panels
    assert shared.seconds(shared.brought) <= min(map(shared.seconds, panels)) * (1 + 1e-9)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("machine", [LAPTOP, SERVER])
def test_lines_are_the_prices_of_lowered_tasks(machine, phase):
    """Between the three priced divisions too, beside what sharing memories costs."""
    question = asked(machine=machine, layers=1)
    frame = question.frame
    lines = shared_matrices(question, "accelerator", "accelerator", phase)
    rows = {op: each.rows // 4 // PANEL * PANEL for op, each in lines.items()}
    placed = place(frame, Division(dict.fromkeys(PHASES, rows), {}))
    costs, work = question.costs(placed), placed.workload
    tasks = lower(placed, mean_step(work) if phase == "decode" else prefill(work)).tasks
    slower = {}
    for op, each in lines.items():
        host = sum(costs.price(t).mid for t in tasks if t.op == op and t.resource == frame.roles.host.name)
        slower[op] = each.host.at(each.rows - rows[op]) / host
        away = sum(costs.price(t).mid for t in tasks if t.op == op and t.resource == frame.accelerator.name)
        assert each.accelerator.at(rows[op]) == pytest.approx(away, rel=0.05, abs=5e-6)
    assert max(slower.values()) == pytest.approx(min(slower.values()), rel=0.03)


@pytest.mark.parametrize("context", [256, 4096])
@pytest.mark.parametrize(
    ("model", "machine"), [("Qwen3-8B", LAPTOP), ("Llama-2-13b-hf", SERVER), ("opt-30b", "a100-optane")]
)
def test_no_uniform_share_is_simulated_faster(model, machine, context):
    """HeteGen's balance against shares of 0, 1/12, .. 1 of every linear layer, replayed with contention."""
    context = min(context, 2048) if model == "opt-30b" else context
    question = asked(model, machine, layers=4, context=context, prompt_tokens=context - 128)
    frame = question.frame
    base = HeteGen(question).balanced("accelerator", "accelerator")
    own = simulated(question, place(frame, base))
    extents = {op: op_extent(frame.model, op)[1] for op in base.brought["decode"]}
    others = []
    for step in range(13):
        rows = {op: PANEL * round(step * rows / 12 / PANEL) for op, rows in extents.items()}
        others.append(simulated(question, place(frame, replace(base, brought=dict.fromkeys(PHASES, rows)))))
    assert own <= min(others) * 1.03
    assert own < min(others[0], others[-1])


def test_more_memory_on_the_accelerator_is_used_for_whole_matrices():
    steps, kept = [], []
    for vram in (2, 7):
        strategy = HeteGen(asked("Qwen3-4B", layers=18, vram=vram * 2**29))
        decision = strategy.decide({})
        assert accept(decision.plan).strategy.name == "hetegen"
        steps.append(decision.seconds)
        kept.append(sum(strategy.division.kept.values()))
    assert steps == sorted(steps, reverse=True) and steps[0] > steps[1]
    assert kept == sorted(kept) and kept[0] < kept[-1]


def test_caches_that_do_not_fit_are_attended_to_by_the_host():
    strategy = HeteGen(asked("Qwen3-4B", SERVER, batch=8, context=8192, vram=4 * 2**30))
    plan = strategy.decide({}).plan
    assert strategy.division.cache == "host"
    assert {rule.memory for rule in plan.kv} == {strategy.question.frame.roles.host.memory}
    attention = {t.resource for t in lower(plan, mean_step(plan.workload)).tasks if t.kind == "attention"}
    assert attention == {"cpu"}


def test_rows_of_prompts_are_divided_by_their_own_balance():
    """Prompts are bound by FLOPs, of which the host has few: it gets fewer rows than in decode steps."""
    brought = HeteGen(asked(layers=12, vram=3 * 10**9, prompt_tokens=2048, context=2176)).division.brought
    for op, rows in brought["decode"].items():
        assert brought["prefill"][op] > rows


def test_what_does_not_fit_says_what_would():
    with pytest.raises(InfeasibleError, match=r"more (in|on) .* would do, or batches of at most"):
        HeteGen(asked("Qwen3-0.6B", layers=2, batch=64, context=40960)).decide({})


def test_a_machine_of_one_memory_is_refused():
    with pytest.raises(UsageError, match="offloading gains nothing"):
        HeteGen(asked(machine="m4max-128gb")).decide({})
