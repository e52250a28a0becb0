"""TwinPilots' blocks: counts and order against every order there is, memory, refusals."""

from itertools import pairwise, product

import pytest
from questions import LAPTOP, SERVER, asked, simulated
from together import together

from helmsman.lowering.lower import lower
from helmsman.planner.checks.accept import accept
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.streaming.whole_blocks import place, runs
from helmsman.planner.strategies.twinpilots import RoleCounts, TwinPilots, spread
from helmsman.scheduler.iteration import prefill
from helmsman.schemas.errors import InfeasibleError, UsageError

ROLES = ("pinned", "streamed", "host")


@pytest.mark.parametrize(
    ("model", "machine", "room", "end"),
    [("Qwen3-8B", LAPTOP, 1.2, "accelerator"), ("Llama-2-13b-hf", SERVER, 1.5, "host")],
)
def test_no_order_at_all_is_simulated_faster(model, machine, room, end):
    """Every order of four blocks that fits `room` GiB beside the output, replayed."""
    question = asked(model, machine, layers=4, vram=round((room + 1.2) * 2**30))
    decision = TwinPilots(question).decide({})
    plan = decision.plan
    own = simulated(question, plan)
    found = []
    for order in product(ROLES, repeat=4):
        placed = place(question.frame, order, end)
        if question.fits(placed):
            found.append(simulated(question, placed))
    assert len(found) > 20
    assert own <= min(found) * 1.05


@together("streamed", range(13))
@together("pinned", [0, 3, 8])
def test_an_order_has_every_block_and_spreads_what_is_streamed(pinned, streamed):
    counts = RoleCounts(pinned, streamed, 10)
    order = spread(counts)
    assert [order.count(role) for role in ROLES] == [pinned, streamed, 10]
    places = [-1, *(place for place, role in enumerate(order) if role == "streamed")]
    gaps = {after - before for before, after in pairwise(places)}
    assert not gaps or max(gaps) - min(gaps) <= 2
    assert sum(run.stop - run.start for role in ROLES for run in runs(order, role)) == len(order)


@pytest.mark.parametrize("room", [7, 8])
def test_transfers_hide_behind_the_work_of_the_host(room):
    """A step is not longer than its work, though blocks come to the accelerator meanwhile."""
    question = asked(layers=16, vram=room * 2**29)
    strategy = TwinPilots(question)
    plan = accept(strategy.decide({}).plan)
    best = min(strategy.finalists(), key=lambda each: each.seconds(strategy.block))
    assert best.streamed > 0 and best.host > 0 and best.pinned > 0
    none = next(each for each in strategy.candidates() if not each.streamed and each.host)
    assert simulated(question, plan) < simulated(question, strategy.placement(none))


def test_counts_fill_the_accelerator():
    """One more pinned block in place of one of the host's does not fit."""
    question = asked(layers=12, vram=6 * 2**29)
    for counts in list(TwinPilots(question).candidates())[1:13]:
        assert question.fits(place(question.frame, spread(counts), counts.end))
        if counts.host > 1:
            more = RoleCounts(counts.pinned + 1, counts.streamed, counts.host - 1, counts.end)
            assert not question.fits(place(question.frame, spread(more), more.end))


def test_prompts_are_worked_on_by_the_accelerator():
    plan = TwinPilots(asked(layers=6, vram=5 * 2**29)).decide({}).plan
    assert {t.resource for t in lower(plan, prefill(plan.workload)).tasks if t.kind == "linear" and t.layer} == {"cuda"}


def test_everything_is_pinned_where_it_fits():
    decision = TwinPilots(asked("Qwen3-0.6B")).decide({})
    assert decision.plan.label == "twinpilots cuda[28 pinned, 0 streamed] cpu[0]"
    assert {use.memory: use.kv for use in memory_use(decision.plan)}["dram"] == 0


def test_what_does_not_fit_says_what_would():
    with pytest.raises(InfeasibleError, match=r"more (in|on) .* would do, or batches of at most"):
        TwinPilots(asked("Qwen3-0.6B", layers=2, batch=64, context=40960)).decide({})


def test_a_machine_of_one_memory_is_refused():
    with pytest.raises(UsageError, match="offloading gains nothing"):
        TwinPilots(asked(machine="m4max-128gb")).decide({})
