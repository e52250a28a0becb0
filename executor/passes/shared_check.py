"""Says which plans run of models whose layers share caches, or have inputs of their own for every token."""

from collections.abc import Sequence

from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass, carries_cache, page_links
from helmsman.lowering.bodies.per_layer_input import LAYER_NORM, LAYER_PROJECTION
from helmsman.lowering.layer_cache import owner, shared_caches
from helmsman.lowering.operation import DIVIDED
from helmsman.lowering.ops import op_extent
from helmsman.lowering.tensors import LOOKUPS
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan


def check_shared(passes: Sequence[PhasePass]) -> None:
    """Raise UsageError where a layer reads the cache of a layer on another device, or one that moves, is in pages or
    read in parts, and where devices share the embedding and inputs of layers."""
    plan = passes[0].plan
    if shared_caches(plan.model):
        _check_together(plan, passes)
        for one_pass in passes:
            _check_whole(one_pass)
    if plan.model.per_layer_table is not None:
        for one_pass in passes:
            _check_projection(one_pass)


def _check_whole(one_pass: PhasePass) -> None:
    plan = one_pass.plan
    divided = any(task.kind in DIVIDED for task in one_pass.tasks)
    if divided or page_links(plan) or any(map(carries_cache, one_pass.tasks)):
        raise UsageError(
            f"layers of {plan.model.name} read the caches of others, which move, are in pages or read in parts: "
            "planned and simulated, not executed",
            field="kv",
            value=plan.strategy.name,
            remedy="keep caches where they are used, and attention whole: layer-split",
        )


def _check_together(plan: Plan, passes: Sequence[PhasePass]) -> None:
    memory_of = {device.name: device.memory for device in plan.hardware.devices}
    uses = [use for one_pass in passes for use in one_pass.uses.values()]
    homes = {use.layer: memory_of[use.device] for use in uses if use.op == "append"}
    for use in (use for use in uses if use.op == "attention"):
        assert use.layer is not None, "an operation of a block"
        home = owner(plan.model, use.layer)
        if homes[home] != memory_of[use.device]:
            raise UsageError(
                f"layer {use.layer} on {use.device} reads the cache of layer {home} in {homes[home]}: planned and "
                "simulated, not executed",
                field="compute",
                value=use.device,
                remedy=f"let one device compute layers {min(shared_caches(plan.model))} to {plan.model.layers - 1}",
            )


def _check_projection(one_pass: PhasePass) -> None:
    """Raise UsageError where what precedes blocks is not whole on one device, whose own blocks change hidden states
    meanwhile."""
    ops = (*LOOKUPS, LAYER_PROJECTION, LAYER_NORM)
    uses = [use for use in one_pass.uses.values() if use.op in ops]
    if len({use.device for use in uses}) > 1 or not all(_is_whole(one_pass.plan, use) for use in uses):
        raise UsageError(
            "devices share the embedding and the inputs of layers: planned and simulated, not executed",
            field="compute",
            value=uses[-1].device,
            remedy=f"let one device compute {', '.join(ops)}",
        )


def _is_whole(plan: Plan, use: DeviceUse) -> bool:
    return (use.start, use.stop) == (0, op_extent(plan.model, use.op, None)[1])
