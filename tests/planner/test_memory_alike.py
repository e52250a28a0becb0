"""Memory is counted for one of every run of equal blocks; block by block it is the same."""

import pytest
from layer_machines import LAYER, OPT_LAYER
from op_plans import make_op_split_plan
from plans import make_plan

from helmsman.planner.memory import alike, memory_use
from helmsman.schemas.plan import LayerRange, Plan

LLAMA, OPT = (model.model_copy(update={"layers": 7}) for model in (LAYER, OPT_LAYER))
PLANS = {
    "layers": make_plan(LLAMA, 4),
    "one device": make_plan(LLAMA),
    "operations": make_op_split_plan(LLAMA, 2, 9),
    "heads in 4-bit groups": make_op_split_plan(OPT, 3, 9, {"scores": 2}, cache_q4=True, weights_q4=True),
    "on the fly": make_op_split_plan(OPT, 0, 11, pinning="pin-on-transfer"),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_blocks_with_rules_of_their_own_take_the_same(plan: Plan) -> None:
    apart = plan.model_copy(update={name: block_by_block(plan, name) for name in ("residence", "kv", "compute")})
    assert len(alike(apart)) == plan.model.layers
    assert memory_use(apart) == memory_use(plan)


def test_blocks_are_told_apart_where_rules_are() -> None:
    assert alike(make_plan(LLAMA, 4)) == {0: 3, 3: 4}
    assert alike(make_plan(LLAMA)) == {0: 7}


def block_by_block(plan: Plan, name: str) -> tuple:
    """The rules once for every block that they cover, and as they were for what is outside blocks."""
    rules = getattr(plan, name)
    return (*(rule for layer in range(plan.model.layers) for rule in own(rules, layer)), *rules)


def own(rules: tuple, layer: int) -> list:
    whole = LayerRange(start=0, stop=layer + 1)
    covering = [
        rule for rule in rules if (rule.select.layers or whole).start <= layer < (rule.select.layers or whole).stop
    ]
    select = {"layers": LayerRange(start=layer, stop=layer + 1)}
    return [rule.model_copy(update={"select": rule.select.model_copy(update=select)}) for rule in covering]
