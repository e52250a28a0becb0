"""FlexGen's policy search: the linear program against a grid, rounding that fits, and what nothing else beats."""

import random
from itertools import product

import pytest
from questions import LAPTOP, limited
from seeds import seeds

from helmsman.hwdb.load_model import load_model
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import shortages
from helmsman.planner.strategies.flexgen_lp import FlexGenLp, divisions
from helmsman.planner.strategies.offload.allocation import Percentages
from helmsman.planner.strategies.offload.linear_program import best_shares
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.offload.policy import SHARES, Form, Policies, PolicyRoom
from helmsman.planner.strategies.offload.policy_prices import Prices
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.percentages import FlexGenPercentages
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.workload import Workload

STEPS = 5
ROWS = [(a / STEPS, b / STEPS, (STEPS - a - b) / STEPS) for a in range(STEPS + 1) for b in range(STEPS + 1 - a)]
GRID = [tuple(share for row in rows for share in row) for rows in product(ROWS, repeat=3)]


def random_policies(seed: int) -> Policies:
    rng = random.Random(seed)

    def some(scale: float) -> Form:
        chosen = rng.sample(SHARES, rng.randint(1, 6))
        return Form(rng.choice([0.0, scale * rng.random()]), {share: scale * rng.random() for share in chosen})

    rooms = []
    for tier in ("storage", "host", "accelerator"):
        sizes = {share: rng.uniform(1, 8) * 1e9 for share in SHARES if share[1] == tier}
        rooms.append(PolicyRoom(rng.uniform(4e9, 30e9), Form(1e9, sizes)))
    terms = [tuple(some(scale) for _ in range(rng.randint(1, 5))) for scale in (0.5, 0.02)]
    allowed = SHARES if rng.random() < 0.5 else rng.sample(SHARES, 8)
    kinds = [{tier for kind, tier in allowed if kind == each} for each in ("weights", "cache", "hidden")]
    return Policies(*terms, 40, rng.randint(1, 200), tuple(rooms), frozenset(allowed if all(kinds) else SHARES), 7)


@pytest.mark.parametrize("seed", seeds(range(10), 3))
def test_no_point_of_a_grid_is_better(seed):
    """Brute force over all shares in fifths, 9,261 policies of three kinds in three tiers."""
    policies = random_policies(seed)
    fitting = [shares for shares in GRID if policies.fits(shares)]
    found = best_shares(policies)
    if found is None:
        assert not fitting
        return
    assert policies.fits(found)
    assert policies.seconds(found) <= min(map(policies.seconds, fitting), default=1e9) * (1 + 1e-7)
    assert policies.seconds(found) <= min(
        (policies.seconds(c) for c in policies.corners() if policies.fits(c)), default=1e9
    )


def test_two_programs_solved_by_hand():
    """Half of the weights fit; then the link's share of them balances the work that caches away from here cost."""
    weights = PolicyRoom(5.0, Form(0.0, {("weights", "accelerator"): 10.0}))
    link = Form(0.0, {("weights", "host"): 2.0})
    allowed = frozenset(
        {("weights", "host"), ("weights", "accelerator"), ("cache", "accelerator"), ("hidden", "accelerator")}
    )
    policies = Policies((link,), (link, Form(0.25, {})), 3, 10, (weights,), allowed, 1)
    found = dict(zip(SHARES, best_shares(policies), strict=True))
    assert found["weights", "accelerator"] == pytest.approx(0.5)
    assert policies.seconds(tuple(found.values())) == pytest.approx(3 * 11 * 1.0)


def frame(model: str, machine: str = LAPTOP, vram: int | None = None, **work: int) -> Frame:
    workload = Workload(**{"prompt_tokens": 128, "output_tokens": 32, "context": 160, **work})
    return Frame(load_model(model), roles(limited(machine, vram)), workload)


CASES = [
    ("Qwen3-8B", LAPTOP, {}),
    pytest.param("Qwen3-4B", LAPTOP, {"batch": 16, "batches": 2}, marks=pytest.mark.nightly),
    pytest.param("Qwen3-8B", "a10-xeon6342", {"batch": 64, "batches": 4, "context": 1024}, marks=pytest.mark.nightly),
    ("opt-30b", "a100-ssd", {"batch": 8, "batches": 2}),
    pytest.param("opt-175b", "a100-fsdax", {"batch": 4}, marks=pytest.mark.nightly),
    ("Llama-2-13b-hf", "rtx3090-epyc7h12", {"batch": 32, "batches": 2, "context": 2048}),
]


def keeping(asked: Frame) -> Keeping:
    storage = next((m.name for m in asked.roles.hardware.memories if m.kind == "nvme"), None)
    return Keeping(asked.roles.host.memory, storage)


@pytest.mark.parametrize(("model", "machine", "work"), CASES)
def test_plans_fit_and_no_single_tier_is_better(model, machine, work):
    """The first policy that fits is the plan; by the cost model of the search, every kind wholly in one tier is not
    better; and FlexGen's sums of blocks are near the prediction of the lowered plan."""
    asked = frame(model, machine, **work)
    ranked = list(FlexGenLp(asked, keeping(asked), CostOptions()).ranked())
    chosen = next(policy for policy in ranked if policy.offloading.fits(asked.workload))
    plan = chosen.offloading.decide({}).plan
    assert not shortages(plan.predicted.memory)
    assert plan.strategy.name == "flexgen-lp"
    corners = [policy for policy in ranked if set(policy.shares) <= {0.0, 1.0}]
    assert corners
    for policy in corners:
        assert chosen.seconds <= policy.seconds * (1 + 1e-9) or not policy.offloading.fits(asked.workload)
    predicted = plan.predicted
    whole = predicted.ttft.seconds.mid + asked.workload.decode_steps * predicted.decode.seconds.mid
    assert chosen.seconds * asked.workload.batch * asked.workload.batches == pytest.approx(whole, rel=0.4)


@pytest.mark.parametrize(
    ("model", "machine", "batch"),
    [
        pytest.param("Qwen3-32B", "rtx3090x2-5950x", 1, marks=pytest.mark.nightly),
        ("Qwen3-8B", "rtx2080ti-i9-10900k", 1),
        pytest.param("Qwen3-14B", "rtx4090-7950x", 3, marks=pytest.mark.nightly),
    ],
)
def test_percentages_that_fit_are_not_better(model, machine, batch):
    """Whatever Listing 2 rounds to, in memories where both sides are nearly full too."""
    asked = frame(model, machine, batch=batch)
    found = FlexGenLp(asked, keeping(asked), CostOptions()).decide({}).seconds
    fits = 0
    for host in range(0, 101, 10):
        allocator = FlexGenPercentages(Percentages(0, host, 100 - host))
        each = Offloading(asked, allocator, keeping(asked), CostOptions())
        if each.fits(asked.workload):
            fits += 1
            assert found <= each.decide({}).seconds * (1 + 1e-3)
    assert fits


def test_a_block_is_divided_into_the_batches_with_the_most_tokens():
    asked = frame("Qwen3-4B", vram=4 * 2**30)
    search = FlexGenLp(asked, keeping(asked), CostOptions(), block=8)
    plan = accept(search.decide({}).plan)
    alone = FlexGenLp(asked, keeping(asked), CostOptions()).decide({}).plan
    assert 1 < plan.workload.batch * plan.workload.batches <= 8
    assert plan.predicted.tokens_per_second.mid > 4 * alone.predicted.tokens_per_second.mid


def test_divisions_stay_within_the_block():
    shapes = {(work.batch, work.batches) for work in divisions(Workload(), 24)}
    assert {(1, 1), (16, 1), (8, 2), (1, 16), (4, 4)} <= shapes
    assert all(batch * batches <= 24 for batch, batches in shapes)


def test_a_solver_without_time_leaves_the_policies_of_one_tier(monkeypatch):
    """HiGHS gives up: what it would have found is left out, and the plan is still one that fits."""
    asked = frame("Qwen3-4B", vram=4 * 2**30)
    assert best_shares(Prices(asked, keeping(asked), CostOptions()).policies(), limit=0.0) is None
    monkeypatch.setattr("helmsman.planner.strategies.flexgen_lp.best_shares", lambda policies: None)
    plan = FlexGenLp(asked, keeping(asked), CostOptions()).decide({}).plan
    assert not shortages(plan.predicted.memory)


def test_attention_is_delegated_where_caches_outgrow_the_accelerator():
    asked = frame("Llama-2-13b-hf", "rtx3090-epyc7h12", batch=32, batches=2, context=2048)
    plan = FlexGenLp(asked, keeping(asked), CostOptions()).decide({}).plan
    assert any(rule.select.names == "attention" for rule in plan.compute)
    plain = Offloading(asked, _lp_allocator(plan), Keeping("dram", cache="host"), CostOptions())
    if plain.fits(asked.workload):
        assert plan.predicted.decode.seconds.mid < plain.decide({}).seconds


def _lp_allocator(plan):
    from helmsman.planner.strategies.flexgen_lp import RoundedPercentages

    return RoundedPercentages(Percentages(0, 100, 0))


def test_what_does_not_fit_says_what_would():
    with pytest.raises(InfeasibleError, match="would do"):
        asked = frame("opt-175b", LAPTOP)
        FlexGenLp(asked, keeping(asked), CostOptions()).decide({})


def test_a_machine_of_one_memory_is_refused():
    with pytest.raises(UsageError, match="offloading gains nothing"):
        asked = frame("Qwen3-8B", "m4max-128gb")
        FlexGenLp(asked, Keeping("unified"), CostOptions()).decide({})
