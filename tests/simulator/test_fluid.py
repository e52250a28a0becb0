import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest
from plans import figure
from seeds import seeds
from together import together

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.hardware import Hardware, JointProducts
from helmsman.simulator.replay import replay
from helmsman.timing._clock import fair_speeds
from helmsman.timing.pools import Pools


@dataclass(frozen=True, slots=True)
class Flow:
    """What a running task asks of memories and links: `rate` bytes/s at full speed, `uses[pool]` times in each.

    A copy inside one physical memory uses it twice: it reads and writes every byte."""

    rate: float
    uses: Mapping[str, int]


def speeds(flows: Sequence[Flow | None], capacity: Mapping[str, float]) -> list[float]:
    """Speed of each flow relative to running alone, in (0, 1], as the native loop shares it out.

    Max-min fair in bytes/s: no flow can be raised without lowering one that is not faster."""
    names = {name: number for number, name in enumerate(capacity)}
    moving = [flow for flow in flows if flow is not None]
    uses = [[(names[pool], times) for pool, times in flow.uses.items()] for flow in moving]
    found = iter(fair_speeds([flow.rate for flow in moving], uses, list(capacity.values())))
    return [1.0 if flow is None else next(found) for flow in flows]


def flow(rate: float, **uses: int) -> Flow:
    return Flow(rate, uses)


def used(flows: list[Flow], given: list[float], pool: str) -> float:
    return sum(f.rate * s * f.uses.get(pool, 0) for f, s in zip(flows, given, strict=True))


def test_flows_that_fit_run_at_full_speed() -> None:
    assert speeds([flow(10, a=1), flow(20, a=1), None], {"a": 30.0}) == [1.0, 1.0, 1.0]


def test_the_small_demand_is_met_and_the_rest_shared() -> None:
    assert speeds([flow(2, a=1), flow(30, a=1), flow(50, a=1)], {"a": 32.0}) == [1.0, 0.5, 0.3]


def test_a_copy_within_one_memory_counts_twice() -> None:
    assert speeds([flow(10, a=2), flow(30, a=1)], {"a": 30.0}) == [1.0, pytest.approx(1 / 3)]


def test_a_flow_held_back_in_one_pool_leaves_room_in_the_other() -> None:
    given = speeds([flow(10, a=1, b=1), flow(10, a=1), flow(30, b=1)], {"a": 10.0, "b": 30.0})
    assert given == [0.5, 0.5, pytest.approx(25 / 30)]


@together("seed", seeds(range(200), 40))
def test_every_flow_is_at_full_speed_or_the_fastest_in_a_full_pool(seed: int) -> None:
    """The certificate of max-min fairness, and capacity is never exceeded."""
    rng = random.Random(seed)
    capacity = {name: rng.uniform(1, 20) for name in "abc"}
    flows = []
    for _ in range(rng.randint(2, 7)):
        uses = {name: rng.randint(1, 2) for name in rng.sample("abc", rng.randint(1, 3))}
        flows.append(Flow(min(rng.uniform(0.1, 20), *(capacity[p] / n for p, n in uses.items())), uses))
    given = speeds(flows, capacity)
    full = {p: used(flows, given, p) >= c * (1 - 1e-9) for p, c in capacity.items()}
    for pool, limit in capacity.items():
        assert used(flows, given, pool) <= limit * (1 + 1e-9)
    for mine, speed in zip(flows, given, strict=True):
        assert 0.0 < speed <= 1.0
        rivals = {
            pool: max(f.rate * s for f, s in zip(flows, given, strict=True) if pool in f.uses) for pool in mine.uses
        }
        held = any(full[pool] and mine.rate * speed >= top * (1 - 1e-9) for pool, top in rivals.items())
        assert speed == 1.0 or held


def test_pools_follow_shares_to_the_physical_memory(hardware: Hardware, task: Callable[..., Task]) -> None:
    pools = Pools(hardware)
    assert pools.capacity == {"dram": 30e9, "far": 5e9, "link h2d": 2e9, "link d2h": 2e9}
    assert pools.uses(task("t", "h2d", 10**9, ("dram", "vram"))) == {"dram": 2}
    assert pools.uses(task("t", "x", 10**9, ("dram", "far"))) == {"dram": 1, "far": 1}
    moved = task("t", "h2d", 10**9, ("dram", "vram"))._replace(kind="transfer")
    assert pools.uses(moved) == {"dram": 2, "link h2d": 1}


def test_products_draw_what_plain_reads_would_move_meanwhile(
    hardware: Hardware, task: Callable[..., Task], graph: Callable[..., TaskGraph]
) -> None:
    """At 0.75 of what reads reach, two products of 10 GB/s fill 26.7 GB/s, and two of 13 GB/s would 34.7 of 30."""
    share = figure(0.75)
    dram = hardware.memory("dram").model_copy(update={"joint_products": (JointProducts(format="f16", share=share),)})
    others = tuple(memory for memory in hardware.memories if memory.name != "dram")
    known = hardware.model_copy(update={"memories": (dram, *others)})
    one = task("a", "cpu", 10**9, ("dram",))._replace(kind="linear", format="f16")
    other = task("b", "acc", 10**9, ("vram",))._replace(kind="linear", format="f16")
    assert Pools(known).drawn(one) == Pools(known).drawn(other._replace(format="q4_0")) == pytest.approx(1e9 / 0.75)
    assert Pools(known).drawn(one._replace(kind="attention")) == Pools(hardware).drawn(one) == 1e9
    for rate, factor in ((10e9, 1.0), (13e9, 2 * 13e9 / 0.75 / 30e9)):
        made = replay(graph(one, other), lambda each, rate=rate: each.bytes / rate, known)
        assert made.makespan == pytest.approx(factor * 1e9 / rate)
        pools = Pools(known)
        speeds = pools.fair_speeds([pools.asked(each, 1e9 / rate) for each in (one, other)])
        assert speeds == pytest.approx([1 / factor] * 2)


def test_the_most_is_what_the_narrowest_pool_lets_through(hardware: Hardware) -> None:
    pools = Pools(hardware)
    assert pools.most({"dram": 1}) == 30e9 and pools.most({"dram": 2}) == 15e9
    assert pools.most({"dram": 2, "far": 1}) == 5e9


def test_a_demand_beyond_the_memory_counts_as_all_of_it(
    hardware: Hardware, task: Callable[..., Task], graph: Callable[..., TaskGraph]
) -> None:
    """100 GB/s are asked of 30: beside another that wants all 30, each gets half."""
    pair = graph(task("a", "cpu", 10**11, ("dram",)), task("b", "acc", 30 * 10**9, ("dram",)))
    assert replay(pair, lambda _: 1.0, hardware).end == (2.0, 2.0)


def test_work_without_bytes_or_time_uses_no_memory(
    hardware: Hardware, task: Callable[..., Task], graph: Callable[..., TaskGraph]
) -> None:
    full = task("a", "cpu", 30 * 10**9, ("dram",))
    assert replay(graph(full, task("b", "acc", 0, ("dram",))), lambda _: 1.0, hardware).makespan == 1.0
    instant = task("b", "acc", 5, ("dram",))
    assert replay(graph(full, instant), lambda t: float(t.name == "a"), hardware).makespan == 1.0


def test_memories_that_share_in_a_circle_are_refused(hardware: Hardware) -> None:
    memories = [
        memory.model_copy(update={"shares": other})
        for memory, other in zip(hardware.memories, ("vram", "dram", None), strict=True)
    ]
    with pytest.raises(BadInputError, match="shares its own bandwidth"):
        Pools(hardware.model_copy(update={"memories": tuple(memories)}))
