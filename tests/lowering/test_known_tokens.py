"""Prompts that are known in part: what is computed, what comes from a store (LMCache), and what memories hold."""

from dataclasses import replace

import pytest

from helmsman.executor.passes.plan_check import check_executed
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement, batches_together
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.decision import plan_document
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import predict
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.planner.strategies.offload.allocation import Percentages
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.percentages import FlexGenPercentages
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.prefix_store import store_rules
from helmsman.planner.strategies.vllm import Vllm
from helmsman.scheduler.iteration import prefill
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.plan import KvRule, Plan, Select, Strategy
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay

LAYERS, KNOWN = 4, 192
MODEL = load_model("Qwen3-0.6B").with_layers(LAYERS)


def frame(machine: str = "a100-ssd", known: int = KNOWN, **work: int) -> Frame:
    shape = {"prompt_tokens": 256, "output_tokens": 8, "context": 264, "prefix_tokens": known, **work}
    return Frame(MODEL, roles(load_hardware(machine, None)), Workload(**shape))


def flexgen(
    store: str | None, percent: tuple[int, int, int] = (0, 0, 100), cache: str = "accelerator", **more
) -> Placement:
    keeping = Keeping("dram", "ssd", cache=cache, away=2 if cache == "layerkv" else 0, store=store)
    return Offloading(frame(**more), FlexGenPercentages(Percentages(*percent)), keeping, CostOptions()).placement


def document(placed: Placement) -> Plan:
    predicted = predict(placed, CostModel(placed.hardware))
    return plan_document(placed, "test", Strategy(name="flexgen"), predicted)


def brought(placed: Placement) -> list[tuple[int | None, tuple[str, ...], int]]:
    tasks = lower(placed, prefill(placed.workload, batches_together(placed))).tasks
    return [(task.layer, task.memories, task.bytes) for task in tasks if task.op == "prefix"]


def kept(placed: Placement) -> dict[str, int]:
    return {use.memory: use.kv for use in memory_use(placed)}


def row(tokens: int) -> int:
    """Bytes of a block's keys and values of so many tokens."""
    return 2 * 2 * tokens * MODEL.dense.kv_width


def test_known_tokens_are_not_computed():
    first = prefill(frame(batch=3).workload)
    assert (first.tokens, first.past, first.context) == (64, KNOWN, 256)
    whole, part = (lower(flexgen(None, known=known), prefill(frame(known=known).workload)) for known in (0, KNOWN))
    ups = [next(task for task in graph.tasks if task.op == "up") for graph in (whole, part)]
    assert ups[1].flops * 4 == ups[0].flops
    attention = [next(task for task in graph.tasks if task.op == "attention") for graph in (whole, part)]
    pairs = [sum(range(start + 1, 257)) for start in (0, KNOWN)]
    assert attention[1].flops * pairs[0] == attention[0].flops * pairs[1]
    assert attention[1].bytes == attention[0].bytes


def test_without_a_store_they_are_in_the_cache_already():
    assert brought(flexgen(None)) == []
    assert kept(flexgen(None)) == kept(flexgen(None, known=0))


@pytest.mark.parametrize("batches", [1, 2])
def test_a_store_sends_every_block_once(batches):
    placed = flexgen("dram", batch=3, batches=batches)
    size = 3 * row(KNOWN)
    assert brought(placed) == [(layer, ("dram", "vram"), size) for layer in range(LAYERS) for _ in range(batches)]
    assert kept(placed)["dram"] == batches * LAYERS * size
    assert kept(placed)["vram"] == kept(flexgen(None, batch=3, batches=batches))["vram"]


def test_a_block_attends_once_its_known_tokens_are_there():
    tasks = lower(flexgen("dram"), prefill(frame().workload)).tasks
    for layer in range(LAYERS):
        coming = next(index for index, task in enumerate(tasks) if task.op == "prefix" and task.layer == layer)
        attention = next(task for task in tasks if task.op == "attention" and task.layer == layer)
        assert coming in attention.deps and tasks[coming].deps == ()
        assert not any(
            coming in task.deps for task in tasks if task.layer == layer and task.op in ("q", "k", "v", "up")
        )


def test_decode_steps_know_of_no_store():
    from helmsman.planner.prediction.predict import mean_step

    with_store, without = (lower(flexgen(store), mean_step(frame().workload)).tasks for store in ("dram", None))
    assert with_store == without


def test_storage_is_read_straight_or_through_host_memory():
    straight = flexgen("ssd")
    assert {ends for _, ends, _ in brought(straight)} == {("ssd", "vram")}
    question = frame("a100-fsdax")
    (rule,) = store_rules(question, "fsdax")
    assert rule.path == "bounce"
    bounced = Offloading(
        question, FlexGenPercentages(Percentages(0, 0, 100)), Keeping("dram", "fsdax", store="fsdax"), CostOptions()
    ).placement
    assert [ends for _, ends, _ in brought(bounced)][:2] == [("fsdax", "dram"), ("dram", "vram")]
    buffers = {use.memory: use.buffers for use in memory_use(bounced)}
    assert buffers["dram"] >= 2 * row(KNOWN)
    with pytest.raises(UsageError, match="no way from there to vram"):
        store_rules(replace(frame("a100-numa"), roles=roles(unlinked("optane1"))), "optane1")


def unlinked(memory: str):
    hardware = load_hardware("a100-numa", None)
    links = tuple(link for link in hardware.links if link.source_memory != memory)
    return hardware.model_copy(update={"links": links})


def test_a_cache_that_lives_in_the_store_is_not_sent_there():
    """Caches of two blocks in host memory: their known tokens are there already, and counted once."""
    placed = flexgen("dram", cache="layerkv")
    assert len(brought(placed)) == LAYERS - 2
    assert kept(placed)["dram"] == 2 * row(264) + (LAYERS - 2) * row(KNOWN)


@pytest.mark.parametrize("percent", [(0, 0, 100), (0, 100, 0), (50, 0, 50)])
@pytest.mark.parametrize("cache", ["accelerator", "host", "layerkv"])
@pytest.mark.parametrize("store", [None, "dram", "ssd"])
def test_prediction_and_simulation_agree(percent, cache, store):
    placed = flexgen(store, percent, cache, batch=2, batches=2)
    costs = CostModel(placed.hardware)
    graph = lower(placed, prefill(placed.workload, 2))
    made = replay(graph, lambda task: costs.price(task).mid, placed.hardware).makespan
    assert made == pytest.approx(predict(placed, costs).ttft.seconds.mid, rel=1e-6)


def test_all_blocks_come_one_after_the_other_while_others_compute():
    """Closed form where nothing else moves: a block attends when it has come and its turn is."""
    placed = Vllm(store="dram").placement(frame())
    costs = CostModel(placed.hardware)
    tasks = lower(placed, prefill(placed.workload)).tasks
    cuda = arrived = 0.0
    for task in tasks:
        seconds = costs.price(task).mid
        if task.op == "prefix":
            arrived += seconds
        elif task.kind != "transfer":
            cuda = max(cuda, arrived) + seconds if task.op == "attention" else cuda + seconds
    assert predict(placed, costs).ttft.seconds.mid == pytest.approx(cuda, rel=1e-9)


def test_a_fast_store_is_worth_it_and_a_slow_one_is_not():
    """LMCache's question: whether bringing is faster than computing again."""
    seconds = {}
    for store, known in ((None, 0), ("dram", KNOWN), ("ssd", KNOWN)):
        large = replace(frame(known=known, batch=16), model=load_model("Qwen3-8B").with_layers(2))
        placed = Vllm(store=store).placement(large)
        if store == "ssd":
            slow = [link.bandwidth.model_copy(update={"value": 2e8, "p10": 1e8}) for link in placed.hardware.links]
            links = tuple(
                link.model_copy(update={"bandwidth": rate})
                for link, rate in zip(placed.hardware.links, slow, strict=True)
            )
            placed = replace(placed, hardware=placed.hardware.model_copy(update={"links": links}))
        seconds[store] = predict(placed, CostModel(placed.hardware)).ttft.seconds.mid
    assert seconds["dram"] < seconds[None] < seconds["ssd"]


@pytest.mark.parametrize("offload", [False, True])
def test_layer_splits_know_of_them(offload):
    """The closed form of a split equals its replay."""
    question = frame(machine="rtx4060-laptop")
    options = SplitQuestion(kv_offload=offload)
    split = LayerSplit(MODEL, question.roles, question.workload, options, CostModel(question.roles.hardware))
    first = prefill(question.workload)
    for k in split.candidates():
        graph = lower(split.placement(k), first)
        made = replay(graph, lambda task: split.costs.price(task).mid, split.roles.hardware).makespan
        assert split.seconds(k, first) == pytest.approx(made, rel=1e-9)


def test_plans_say_it_all():
    plan = document(flexgen("ssd"))
    assert accept(Plan.model_validate_json(plan.to_json())) == plan
    with pytest.raises(UsageError, match="known in part are planned and simulated, not executed"):
        check_executed(plan)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"format": "f32"}, "known tokens are kept as the caches to which they come, in f16"),
        ({"path": "pin-on-transfer"}, "known tokens are stored whole"),
        ({"memory": "tape"}, "no such memory"),
    ],
)
def test_stores_that_cannot_be_are_refused(rule, says):
    plan = document(flexgen("dram"))
    wrong = KvRule(**{"select": Select(names="prefix"), "memory": "dram", "format": "f16", **rule})
    with pytest.raises(BadInputError, match=says):
        accept(plan.model_copy(update={"kv": (wrong, *plan.kv[1:])}))


def test_the_last_token_of_a_prompt_is_computed():
    with pytest.raises(ValueError, match="no token of the prompt is left"):
        frame(known=256)
