"""Rules are looked up, and memory is counted, for one of every run of equal blocks; block by block it is the same."""

import pytest
from layer_machines import LAYER, OPT_LAYER
from op_plans import make_op_split_plan
from plans import make_plan

from helmsman.lowering.lower import lower
from helmsman.lowering.ops import BLOCK_OPS, op_extent
from helmsman.lowering.placement import batches_together, known
from helmsman.lowering.rules import homes, kv_homes, places
from helmsman.lowering.tensors import tensors
from helmsman.planner.cost.model import CostModel, work_of
from helmsman.planner.memory.alike_blocks import alike
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import mean_step, pass_seconds
from helmsman.scheduler.iteration import PHASES, prefill
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.figures import Figure
from helmsman.schemas.plan import ComputeRule, LayerRange, Plan, Select
from helmsman.timing.makespan import makespan
from helmsman.timing.works import alike as kinds_of

LLAMA, OPT = (model.with_layers(7) for model in (LAYER, OPT_LAYER))
PLANS = {
    "layers": make_plan(LLAMA, 4),
    "one device": make_plan(LLAMA),
    "operations": make_op_split_plan(LLAMA, 2, 9),
    "heads in 4-bit groups": make_op_split_plan(OPT, 3, 9, {"scores": 2}, cache_q4=True, weights_q4=True),
    "on the fly": make_op_split_plan(OPT, 0, 11, pinning="pin-on-transfer"),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_blocks_with_rules_of_their_own_take_the_same(plan: Plan) -> None:
    apart = told_apart(plan)
    assert len(alike(apart)) == plan.model.layers
    assert memory_use(apart) == memory_use(plan)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_blocks_with_rules_of_their_own_become_the_same_tasks(plan: Plan) -> None:
    together = batches_together(plan)
    for iteration in (prefill(plan.workload, together), mean_step(plan.workload, together)):
        assert lower(told_apart(plan), iteration) == lower(plan, iteration)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_what_is_known_is_what_the_rules_say(plan: Plan) -> None:
    """The first answer of a run of blocks is that of each of them."""
    asked, model = known(plan), plan.model
    assert all(homes(asked, tensor) == homes(plan, tensor) for tensor in tensors(model))
    for layer in range(model.layers):
        for what in ("keys", "values"):
            assert kv_homes(asked, what, layer, model.dense.kv_heads) == kv_homes(
                plan, what, layer, model.dense.kv_heads
            )
        for op in (*BLOCK_OPS, "scores", "wv"):
            axis, extent = op_extent(model, op)
            for phase in PHASES:
                about = (op, layer, phase, extent, axis)
                assert places(asked, *about) == places(plan, *about)


def test_a_rule_is_looked_up_once_for_a_run() -> None:
    """However many blocks there are."""
    plans = (make_plan(LLAMA.with_layers(layers), 4) for layers in (7, 70))
    asked = [known(plan) for plan in plans]
    for plan in asked:
        lower(plan, mean_step(plan.workload))
    assert len(asked[0].slices) == len(asked[1].slices)


def test_a_device_that_is_not_there_is_named() -> None:
    plan = make_plan(LLAMA)
    wrong = ComputeRule(select=Select(names="up", layers=LayerRange(start=5, stop=6)), device="npu")
    with pytest.raises(BadInputError, match="npu"):
        lower(plan.model_copy(update={"compute": (wrong, *plan.compute)}), mean_step(plan.workload))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_equal_work_is_scheduled_as_if_every_task_had_a_price_of_its_own(plan: Plan) -> None:
    """To the last bit, with memories shared and with busy links that slow the device."""
    first, *links = plan.hardware.links
    factor = Figure(value=0.4, p10=0.3, p90=0.5, source=next(iter(plan.hardware.sources)))
    slowing = first.model_copy(update={"slows": {plan.hardware.devices[0].name: factor}})
    graph = lower(plan, mean_step(plan.workload, batches_together(plan)))
    for hardware in (plan.hardware, plan.hardware.model_copy(update={"links": (slowing, *links)})):
        costs = CostModel(hardware)
        assert len(kinds_of(graph, work_of).kinds) < len(graph.tasks) / 2
        each = makespan(graph, lambda task, costs=costs: costs.price(task).mid, costs.pools, costs.slowed())
        assert pass_seconds(graph, costs) == each


def test_blocks_are_told_apart_where_rules_are() -> None:
    assert alike(make_plan(LLAMA, 4)) == {0: 3, 3: 4}
    assert alike(make_plan(LLAMA)) == {0: 7}


def told_apart(plan: Plan) -> Plan:
    """The same plan with rules of its own for every block."""
    return plan.model_copy(update={name: block_by_block(plan, name) for name in ("residence", "kv", "compute")})


def block_by_block(plan: Plan, name: str) -> tuple:
    """The rules once for every block that they cover, and as they were for what is outside blocks."""
    rules = getattr(plan, name)
    return (*(rule for layer in range(plan.model.layers) for rule in own(rules, layer)), *rules)


def own(rules: tuple, layer: int) -> list:
    whole = (LayerRange(start=0, stop=layer + 1),)
    covering = [rule for rule in rules if any(each.start <= layer < each.stop for each in rule.select.ranges or whole)]
    select = {"layers": LayerRange(start=layer, stop=layer + 1)}
    return [rule.model_copy(update={"select": rule.select.model_copy(update=select)}) for rule in covering]
