"""Time between tasks: closed forms, the replay against the planner's own schedule, terms and passes."""

import random
from collections.abc import Callable

import pytest
from contending import MakeTask, crossing, figure, machine, on, random_case
from plain_clock import scheduled
from seeds import seeds
from together import together

from helmsman.lowering.graph import TaskGraph
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.between_terms import SUBMISSION, between_terms
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.hardware import Hardware
from helmsman.simulator.replay import replay, replay_stream
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import alone
from helmsman.timing.works import apart

MakeGraph = Callable[..., TaskGraph]
HANDOVERS, JOINS = {"h2d": 0.03, "d2h": 0.005, "s2d": 0.2}, {"cuda": 0.02, "cpu": 0.01}
SLOWS = {"h2d": {"cuda": 0.4, "cpu": 0.9}, "d2h": {"cuda": 0.05}}
SMALL = {"h2d": {"cuda": 1.5}, "d2h": {"cuda": 2.0, "cpu": 0.3}}


def plain() -> Hardware:
    return crossing(machine(1e12, {}), HANDOVERS, JOINS)


def test_what_waits_for_a_transfer_begins_after_the_hand_over(task: MakeTask, graph: MakeGraph) -> None:
    dag = graph(on(task, "made", "cpu", 0), on(task, "move", "h2d", 0, (0,)), on(task, "use", "cuda", 0, (1,)))
    done = replay(dag, lambda _: 1.0, plain(), between=Handovers(plain()))
    assert done.start == pytest.approx((0.0, 1.0, 2.03))


def test_a_task_that_joins_begins_after_the_one_before_it(task: MakeTask, graph: MakeGraph) -> None:
    """What it waits for was over long ago; a task that waits for nothing else follows at once."""
    dag = graph(
        on(task, "move", "h2d", 0),
        on(task, "first", "cuda", 0),
        on(task, "joins", "cuda", 0, (0, 1)),
        on(task, "follows", "cuda", 0, (2,)),
    )
    done = replay(dag, lambda t: 0.25 if t.name == "move" else 1.0, plain(), between=Handovers(plain()))
    assert done.start == pytest.approx((0.0, 0.0, 1.02, 2.02))


def test_the_later_of_hand_over_and_join_counts(task: MakeTask, graph: MakeGraph) -> None:
    dag = graph(on(task, "move", "h2d", 0), on(task, "first", "cuda", 0), on(task, "joins", "cuda", 0, (0,)))
    for moved, start in ((0.98, 1.02), (0.995, 1.025), (2.0, 2.03)):
        hardware = plain()
        done = replay(dag, lambda t, m=moved: m if t.name == "move" else 1.0, hardware, between=Handovers(hardware))
        assert done.start[2] == pytest.approx(start)


def test_small_transfers_delay_by_what_interrupts_say(task: MakeTask, graph: MakeGraph) -> None:
    """Small: bytes take no longer than the latency, 1 s at 4 GB/s. Delays by what else is slow multiply."""
    hardware = crossing(machine(1e12, {}, SLOWS), {}, {}, SMALL, latency=1.0)
    for size, factor in ((4 * 10**9, 1.4 * 2.5), (5 * 10**9, 1.4 * 1.75)):
        pair = graph(on(task, "work", "cuda", 0), on(task, "move", "h2d", size))
        done = replay(pair, lambda t: 1.0 if t.name == "work" else 9.0, hardware, between=Handovers(hardware))
        assert done.end[0] == pytest.approx(factor)


def test_interrupted_work_wants_all_of_its_memory_while_it_runs(task: MakeTask, graph: MakeGraph) -> None:
    """Two that want 8 GB/s of 10 GB/s have half each; one that runs half of the time has a quarter, the other the rest,
    but no more than it wants."""
    bare = machine(10e9, {})
    for small, expected in ((1.0, 2.5e9), (4.0, 1e9)):
        hardware = crossing(bare, {}, {}, {"d2h": {"cpu": small}}, latency=1.0)
        shared = hardware.model_copy(
            update={
                "memories": tuple(
                    m.model_copy(update={"shares": "dram" if m.name == "vram" else None}) for m in hardware.memories
                )
            }
        )
        trio = graph(
            on(task, "here", "cpu", 8 * 10**9), on(task, "there", "cuda", 8 * 10**9), on(task, "move", "d2h", 0)
        )
        done = replay(trio, lambda t: 9.0 if t.name == "move" else 1.0, shared, between=Handovers(shared))
        assert done.end[1] == pytest.approx(8 / min(8.0, 10 - expected / 1e9))


@together("seed", seeds(range(200), 40))
def test_a_prediction_equals_the_replay(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    """With memories and links shared, busy links that delay, small ones otherwise, and time between tasks."""
    rng = random.Random(9000 + seed)
    tasks, prices = random_case(rng, task, 60)
    bare = machine(rng.choice([2e9, 5e9, 1e12]), rng.choice([{}, {"s2d": "h2d"}]), rng.choice([{}, SLOWS]))
    small = rng.choice([None, SMALL])
    hardware = crossing(bare, rng.choice([{}, HANDOVERS]), rng.choice([{}, JOINS]), small, latency=0.2)
    dag, slowed, between = graph(*tasks), alone(hardware), Handovers(hardware)
    done = replay(dag, lambda t: prices[t.name], hardware, slowed, between)
    mine = scheduled(dag, hardware, lambda t: prices[t.name], slowed, between)
    assert mine == pytest.approx(done.makespan, rel=1e-9)


def test_streaming_equals_the_whole(task: MakeTask, graph: MakeGraph) -> None:
    tasks, prices = random_case(random.Random(7001), task, 150)
    hardware = crossing(machine(8e9, {}, SLOWS), HANDOVERS, JOINS, SMALL, latency=0.2)
    between = Handovers(hardware)
    whole = replay(graph(*tasks), lambda t: prices[t.name], hardware, between=between).summary
    assert replay_stream(iter(tasks), lambda t: prices[t.name], hardware, window=100, between=between) == whole


def test_a_pass_is_handed_over_in_pieces(task: MakeTask, graph: MakeGraph) -> None:
    """Operations that nothing interrupts are one piece; what waits for another lane, or is waited for, ends one."""
    dag = graph(
        on(task, "a", "cpu", 0),
        on(task, "b", "cpu", 0, (0,)),
        on(task, "move", "h2d", 0, (1,)),
        on(task, "c", "cpu", 0, (1,)),
        on(task, "use", "cuda", 0, (2,)),
        on(task, "more", "cuda", 0, (4,)),
    )
    assert apart(dag).submissions == 4
    passes = BetweenPasses(begin={"cpu": figure(0.1), "cuda": figure(0.5)}, submission=figure(0.25))
    hardware = plain().model_copy(update={"between_passes": passes})
    assert Handovers(hardware).begins(apart(dag)) == pytest.approx(1.5)
    assert Handovers(plain()).begins(apart(dag)) == 0.0


def test_a_pass_begins_when_the_device_that_ended_the_one_before_says_so(task: MakeTask, graph: MakeGraph) -> None:
    """A device that nobody measured takes as long as the slowest."""
    both = {"cpu": figure(0.25), "cuda": figure(0.5)}
    for begin, last, seconds in ((both, "cpu", 0.25), (both, "cuda", 0.5), ({"cuda": figure(0.5)}, "cpu", 0.5)):
        passes = BetweenPasses(begin=begin, submission=figure(0.0))
        hardware = plain().model_copy(update={"between_passes": passes})
        dag = graph(on(task, "a", "cpu", 0), on(task, "b", last, 0, (0,)), on(task, "token", "d2h", 0, (1,)))
        assert Handovers(hardware).begins(apart(dag)) == seconds


def test_a_replay_can_begin_later(task: MakeTask, graph: MakeGraph) -> None:
    summary = replay(graph(on(task, "a", "cpu", 0)), lambda _: 1.0, plain()).summary
    later = summary.later(0.5)
    assert later.makespan == 1.5
    assert later.shares.total == pytest.approx(1.5)


def test_a_pass_of_transfers_alone_ends_on_no_device(task: MakeTask, graph: MakeGraph) -> None:
    """Whoever begins the next takes as long as the slowest."""
    passes = BetweenPasses(begin={"cpu": figure(0.25), "cuda": figure(0.5)}, submission=figure(0.0))
    dag = graph(on(task, "up", "h2d", 0), on(task, "down", "d2h", 0, (0,)))
    assert apart(dag).ends_on == "d2h"
    assert Handovers(plain().model_copy(update={"between_passes": passes})).begins(apart(dag)) == 0.5


@pytest.mark.parametrize("last", ["cpu", "cuda", "cuda:decompress"])
def test_the_beginning_of_a_pass_is_a_term_of_the_device_that_ends_it(
    last: str, task: MakeTask, graph: MakeGraph
) -> None:
    passes = BetweenPasses(begin={"cpu": figure(0.25), "cuda": figure(0.5)}, submission=figure(0.0))
    costs = CostModel(plain().model_copy(update={"between_passes": passes}))
    dag = graph(on(task, "a", "cpu", 0), on(task, "b", last, 0, (0,)), on(task, "token", "d2h", 0, (1,)))
    [term] = [term for term in between_terms(apart(dag), costs) if term.op == SUBMISSION]
    assert (term.resource, term.seconds.mid) == (("cpu", 0.25) if last == "cpu" else ("cuda", 0.5))
