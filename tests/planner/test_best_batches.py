"""The batch and number of batches with the most tokens/s, against asking about all of them."""

import random
from dataclasses import replace
from itertools import takewhile

import pytest
from daily import one_in
from questions import asked
from seeds import seeds
from together import together

from helmsman.planner.batches.best_batches import MOST_BATCHES, BatchDivision, BestBatches, DividedPlan, Refusal
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_search import decide as decide_split
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.schemas.errors import InfeasibleError

MB = 10**6


def machine_of(rng):
    """Seconds of divisions on a made-up machine: what is read once, and what a sequence adds, more beyond a knee."""
    once, each, knee, worse = rng.uniform(0.1, 5), rng.uniform(0.01, 1), rng.randint(1, 12), rng.choice([0, 1, 5])
    room, per_batch, overlap = rng.randint(1, 11), rng.randint(0, 3), rng.uniform(0.7, 1)
    says = rng.random() < 0.5

    def ask(division):
        if division.sequences + per_batch * division.batch > room:
            most = room // (division.batches + per_batch)
            return Refusal(most if says else None)
        work = division.sequences * each + max(0, division.batch - knee) * worse
        seconds = once + work * overlap ** (division.batches > 1)
        return DividedPlan(division.sequences / seconds, once + 0.7 * division.sequences * each)

    return ask


@together("seed", seeds(range(60), 15))
def test_the_best_of_all_batches_is_found(seed):
    """Up to ten sequences nothing lies between neighbours, so the best of all is the best of the search."""
    rng = random.Random(seed)
    ask, batches = machine_of(rng), rng.choice([1, 2, 3])
    found = BestBatches(ask, 1, batches=batches)
    best = found.best()
    every = {BatchDivision(batches, batch): ask(BatchDivision(batches, batch)) for batch in range(1, 11)}
    rates = {each: answer.rate for each, answer in every.items() if isinstance(answer, DividedPlan)}
    if not rates:
        assert best is None
        return
    assert ask(best).rate >= max(rates.values()) * (1 - 1e-9)
    assert all(found.at_most(each) >= rate * (1 - 1e-9) for each, rate in rates.items())


@together("seed", seeds(range(60), 15))
def test_no_division_considered_is_better(seed):
    ask = machine_of(random.Random(seed))
    times = []
    found = BestBatches(lambda each: times.append(each) or ask(each), 1)
    best = found.best()
    assert len(times) == len(set(times))
    for each in found.considered():
        answer = ask(BatchDivision(each.batches, each.batch))
        assert isinstance(answer, Refusal) == (each.verdict == "no-plan")
        if isinstance(answer, DividedPlan):
            assert answer.rate <= min(each.rate, ask(best).rate) * (1 + 1e-9)
    assert {each.batches for each in found.considered()} <= {1 << power for power in range(MOST_BATCHES.bit_length())}


def test_the_number_of_batches_alone():
    rates = {1: 1.0, 2: 1.5, 3: 1.9, 4: 1.8, 5: 1.7, 6: 1.6, 7: 1.5, 8: 1.4}
    found = BestBatches(
        lambda each: DividedPlan(rates[each.batches], 1e-9) if each.sequences <= 24 else Refusal(), 8, batch=3
    )
    assert found.best() == BatchDivision(batches=3, batch=3)


def test_batches_that_only_take_turns_are_not_multiplied():
    found = BestBatches(
        lambda each: DividedPlan(each.batch, 1.0, each.batches > 1) if each.batch < 9 else Refusal(8), 1
    )
    assert found.best() == BatchDivision(batches=1, batch=8)
    assert max(each.batches for each in found.considered()) == 2


def test_what_is_slow_for_few_is_not_asked_about():
    """One sequence takes a second at least, so four make 4 tokens/s at most: less than 32 are known to make."""
    seen = []
    found = BestBatches(lambda each: seen.append(each.batch) or DividedPlan(each.batch / 4, 1.0), 1, batches=1)
    found.best()
    left = {each.batch for each in found.considered() if each.verdict == "left-out"}
    assert {2, 4, 8} <= left and not left & set(seen)


@pytest.mark.parametrize(("strategy", "dram"), one_in(2, [("optimal", 110), ("layer-split", 165)]))
def test_against_every_batch_of_a_small_machine(strategy, dram):
    """Two blocks beside memories with room for few sequences."""
    question = asked("opt-125m", layers=2, vram=75 * MB, prompt_tokens=448, output_tokens=64, context=512)
    hardware = question.frame.roles.hardware
    memories = [each.model_copy(update={"available": min(each.available, dram * MB)}) for each in hardware.memories]
    small = roles(hardware.model_copy(update={"memories": tuple(memories)}))

    def ask(division):
        work = question.frame.workload.model_copy(update=division._asdict())
        frame = replace(question.frame, roles=small, workload=work)
        try:
            plan = decided(strategy, replace(question, frame=frame)).plan
        except InfeasibleError as error:
            return Refusal(error.largest_batch)
        seconds = plan.predicted.prefill.seconds.mid + 63 * plan.predicted.decode.seconds.mid
        least = plan.predicted.prefill.lower_bound + 63 * plan.predicted.decode.lower_bound
        return DividedPlan(work.batch * 64 / seconds, least)

    found = BestBatches(ask, 64, batches=1)
    best = found.best()
    every = (found.answers.get(BatchDivision(1, batch)) or ask(BatchDivision(1, batch)) for batch in range(1, 13))
    rates = [answer.rate for answer in takewhile(lambda each: isinstance(each, DividedPlan), every)]
    assert 3 <= len(rates) < 12
    assert found.answers[best].rate == max(rates)
    assert all(rate <= found.at_most(BatchDivision(1, batch)) for batch, rate in enumerate(rates, start=1))


def decided(strategy, question):
    """A strategy's decision for the most tokens/s."""
    if strategy == "optimal":
        return Optimal(question, Aim("request", {"prefill": 1.0, "decode": 63.0})).decide({})
    frame, options = question.frame, SplitQuestion(objective="throughput")
    costs = CostModel(frame.roles.hardware, question.cost_options)
    return decide_split(LayerSplit(frame.model, frame.roles, frame.workload, options, costs), {})
