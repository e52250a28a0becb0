"""Slots for experts in passes: parts that hit and that miss, what comes over the link, and bytes in memories."""

from random import Random

import pytest
from expert_question import MIB, question, routing_of, skewed

from helmsman.lowering.expert_parts import fetched_experts, fetched_share
from helmsman.lowering.lower import lower
from helmsman.lowering.pass_shape import SizedPass, pass_of
from helmsman.lowering.placement import Placement, shaped
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule, place
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.routing import LayerRouting

LAYERS, SLOTS = 2, 32
HOST, FETCHED = SlotRule("least-recent", "host"), SlotRule("least-recent", "fetched")
DIVIDED, PINNED = SlotRule("least-recent", "divided", 0.25), SlotRule("popularity", "host")


def placed(rule: SlotRule, streamed: bool = False, skew: float | None = None, slots: int = SLOTS) -> Placement:
    ask = question("Qwen3-30B-A3B", LAYERS, 9_000 * MIB)
    if skew is not None:
        model = ask.frame.model
        layers = [LayerRouting(layer=layer, popularity=skewed(128, 8, skew)) for layer in range(LAYERS)]
        ask = question("Qwen3-30B-A3B", LAYERS, 9_000 * MIB, routing=routing_of(model, *layers))
    return place(ask.frame, ExpertLayout(0, LAYERS, 0, streamed, rule, slots))


def downs(placement: Placement) -> dict[tuple[str, tuple[int, int] | None], int]:
    tasks = lower(placement, mean_step(placement.workload)).tasks
    return {
        (task.resource, task.rows): task.bytes
        for task in tasks
        if task.kind == "experts" and task.name.startswith("1.experts_down")
    }


def test_hits_are_computed_where_slots_are_and_misses_where_rules_say() -> None:
    sizes = downs(placed(PINNED))
    assert set(sizes) == {("cuda", (0, 32)), ("cpu", (32, 128))}
    assert sizes["cpu", (32, 128)] == pytest.approx(3 * sizes["cuda", (0, 32)], rel=0.01)


def test_missed_experts_enter_slots_behind_the_pass() -> None:
    tasks = lower(placed(HOST), mean_step(placed(HOST).workload)).tasks
    entering = [at for at, task in enumerate(tasks) if task.payload == "weights" and task.resource == "h2d"]
    assert len(entering) == 3 * LAYERS
    assert all(tasks[dep].resource == "cpu" for at in entering for dep in tasks[at].deps)
    assert not {dep for task in tasks for dep in task.deps} & set(entering)
    assert not any(
        task.payload == "weights" for task in lower(placed(PINNED), mean_step(placed(PINNED).workload)).tasks
    )


def test_fetched_experts_come_when_the_router_has_chosen() -> None:
    tasks = lower(placed(FETCHED), mean_step(placed(FETCHED).workload)).tasks
    copies = [at for at, task in enumerate(tasks) if task.payload == "weights"]
    assert {tasks[dep].name for at in copies for dep in tasks[at].deps} == {"0.router@d2h", "1.router@d2h"}
    products = [task for task in tasks if task.kind == "experts"]
    assert {task.resource for task in products} == {"cuda"} and len(products) == 6 * LAYERS
    hit, missed = (next(t for t in products if t.layer == 1 and t.rows == rows) for rows in ((0, 32), (32, 128)))
    assert not set(hit.deps) & set(copies) and set(missed.deps) & set(copies)


def test_divided_misses_have_three_parts() -> None:
    sizes = downs(placed(DIVIDED))
    assert set(sizes) == {("cuda", (0, 32)), ("cuda", (32, 56)), ("cpu", (56, 128))}
    share = fetched_share(32, 0.25, 8.0, 2.0)
    assert sizes["cuda", (32, 56)] / (sizes["cuda", (32, 56)] + sizes["cpu", (56, 128)]) == pytest.approx(
        share, rel=0.01
    )


@pytest.mark.parametrize(
    ("slots", "share", "distinct", "hit"),
    [(3, 0.11, 4, 0.4), (47, 0.11, 8, 2.9), (3, 0.5, 8, 3.0), (7, 0.5, 3, 2.6), (16, 0.2, 100, 12.5), (5, 0.5, 8, 0.0)],
)
def test_fetched_shares_are_those_of_drawn_passes(slots: int, share: float, distinct: float, hit: float) -> None:
    """Every chosen expert is in a slot or not; whole experts are fetched, as far as slots hold none of the pass."""
    draws = Random(5)
    fetched = missed = 0
    for _ in range(20_000):
        missing = sum(draws.random() >= hit / distinct for _ in range(int(distinct)))
        missed += missing
        fetched += max(0, min(fetched_experts(missing, share), slots - int(distinct) + missing)) if missing else 0
    assert fetched_share(slots, share, distinct, hit) == pytest.approx(fetched / missed, rel=0.05)


def test_no_share_of_nothing_is_fetched() -> None:
    assert fetched_share(8, 0.5, 4.0, 4.0) == 0.0


def test_popular_experts_hit_more() -> None:
    plain, skew = downs(placed(PINNED)), downs(placed(PINNED, skew=1.0))
    assert skew["cuda", (0, 32)] > 1.8 * plain["cuda", (0, 32)]
    assert sum(skew.values()) == pytest.approx(sum(plain.values()), rel=0.01)


@pytest.mark.parametrize("rule", [HOST, FETCHED, DIVIDED, PINNED])
@pytest.mark.parametrize("streamed", [False, True])
def test_passes_of_a_shape_are_sized_as_they_are_lowered(rule: SlotRule, streamed: bool) -> None:
    placement = placed(rule, streamed, skew=0.8)
    for one, other in (
        (Iteration(1, "decode", 1, 1, 200), Iteration(1, "decode", 3, 1, 220)),
        (Iteration(0, "prefill", 1, 128, 128), Iteration(0, "prefill", 1, 64, 64)),
    ):
        pass_of(shaped(placement), one)
        sized = pass_of(shaped(placement), other)
        assert isinstance(sized, SizedPass)
        runs = [task for run in sized.graph.runs for _ in range(run.times) for task in run.tasks]
        lowered = lower(placement, other).tasks
        assert [task.bytes for task in runs] == [task.bytes for task in lowered]
        assert [(task.tokens, task.sequences, task.per_token, task.flops) for task in runs] == [
            (task.tokens, task.sequences, task.per_token, task.flops) for task in lowered
        ]


def test_slots_take_room_beside_the_home() -> None:
    bare = place(question("Qwen3-30B-A3B", LAYERS, 9_000 * MIB).frame, ExpertLayout(0, LAYERS))
    one = {use.memory: use for use in memory_use(bare)}
    two = {use.memory: use for use in memory_use(placed(FETCHED))}
    experts = 128 * 3 * 2048 * 768 * 18 // 32 * LAYERS
    assert two["vram"].weights - one["vram"].weights == experts * SLOTS // 128
    assert two["dram"] == one["dram"] and two["vram"].buffers == one["vram"].buffers
    ahead = {use.memory: use for use in memory_use(placed(FETCHED, streamed=True))}
    assert ahead["vram"].buffers - one["vram"].buffers == pytest.approx(2 * experts / LAYERS * 96 / 128, rel=0.01)


def test_another_routing_is_another_shape() -> None:
    plain, skew = placed(PINNED), placed(PINNED, skew=1.0)
    step = mean_step(plain.workload)
    first, second = (pass_of(shaped(one), step) for one in (plain, skew))
    assert isinstance(first, SizedPass) and isinstance(second, SizedPass)
    assert sum(task.bytes for task in first.kinds) != sum(task.bytes for task in second.kinds)


@pytest.mark.parametrize(("rule", "streamed", "spare"), [(PINNED, False, 0), (PINNED, True, 8), (DIVIDED, True, 0)])
def test_experts_that_come_beside_pinned_ones_have_slots(rule: SlotRule, streamed: bool, spare: int) -> None:
    """As many as a token chooses, which layers share."""

    def weights(rule: SlotRule, slots: int = SLOTS) -> int:
        return {use.memory: use.weights for use in memory_use(placed(rule, streamed, slots=slots))}["vram"]

    a_slot = (weights(HOST, SLOTS + 1) - weights(HOST)) // LAYERS
    assert weights(rule) - weights(HOST) == spare * a_slot
