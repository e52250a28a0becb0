"""Says which divisions of experts run: those of all matrices alike, between their router's device and one other."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from helmsman.executor.devices.accelerators import OPENERS
from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass
from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS
from helmsman.lowering.bodies.experts_apart import COMBINE, ROUTER
from helmsman.lowering.bodies.feed_forward import SHARED
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import NATIVE_KINDS
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan

_SHARED = tuple(f"{SHARED}{name}" for name in ("gate", "up", "down", "scale"))
"""Operations of the network that all tokens share."""


class _ExpertUses(NamedTuple):
    """The uses of a block with experts, in one pass."""

    layer: int | None
    uses: tuple[DeviceUse, ...]

    def devices(self, *names: str) -> set[str]:
        """Return the devices of operations."""
        return {use.device for use in self.uses if use.op in names}

    def divisions(self) -> set[frozenset[tuple[str, int, int]]]:
        """Return by which devices and experts products are divided, equal ones once."""
        products = {use.op for use in self.uses if use.op in EXPERT_PRODUCTS}
        return {
            frozenset((use.device, use.start, use.stop) for use in self.uses if use.op == name) for name in products
        }


def check_experts(phase_pass: PhasePass) -> None:
    """Raise UsageError where a pass divides experts as stages do not compute them."""
    for parts in _blocks(phase_pass):
        reason = _unknown(parts, phase_pass.plan.model)
        if reason is not None:
            raise UsageError(
                f"experts of block {parts.layer}: {reason}, which is planned and not executed",
                field="compute",
                value=", ".join(sorted({use.device for use in parts.uses})),
                remedy="divide gate, up and down alike, between the router's device and one other",
            )


def check_slots_run(plan: Plan) -> None:
    """Raise UsageError for slots on a device that the executor does not drive."""
    for rule in plan.expert_slots:
        kinds = {device.kind for device in plan.hardware.devices if device.memory == rule.memory}
        if not kinds <= {*NATIVE_KINDS, *OPENERS}:
            message = "slots on this device are planned and simulated, not executed: it has no executor"
            remedy = "use a loopback accelerator, or a device that PyTorch drives"
            raise UsageError(message, field="expert_slots.memory", value=rule.memory, remedy=remedy)


def come_late(passes: Sequence[PhasePass]) -> bool:
    """Whether experts with slots come to prompts when their router has chosen, which are planned to come ahead."""
    prompts = (one_pass for one_pass in passes if one_pass.phase == "prefill")
    return any(
        "fetched" in one_pass.slotted.values() and one_pass.plan.schedule.overlap == "next-layer"
        for one_pass in prompts
    )


def _blocks(phase_pass: PhasePass) -> Iterator[_ExpertUses]:
    by_layer: dict[int | None, list[DeviceUse]] = {}
    for index, use in phase_pass.uses.items():
        if phase_pass.tasks[index].batch == 0:
            by_layer.setdefault(use.layer, []).append(use)
    for layer, uses in by_layer.items():
        if any(use.op == ROUTER for use in uses):
            yield _ExpertUses(layer, tuple(uses))


def _unknown(parts: _ExpertUses, model: Model) -> str | None:
    """Return how a block is divided, where stages do not know that."""
    divisions = parts.divisions()
    if len(divisions) != 1:
        return "their matrices are divided unlike each other"
    (division,) = divisions
    routers, experts = parts.devices(ROUTER), {device for device, _, _ in division}
    if experts == routers:
        return None
    if parts.layer is not None and _norms_sum(model, parts.layer):
        return "their router has an input of its own, or their sum is normed before it is added"
    shared = {use.device for use in parts.uses if use.op in _SHARED}
    if parts.devices(COMBINE) != routers or not shared <= routers:
        return "another device than the router's adds up what they give"
    if len(experts - routers) > 1:
        return "several devices beside the router's compute them"
    return None


def _norms_sum(model: Model, layer: int) -> bool:
    """Return whether a message of the router, or a sum that is added, would not be what experts of the block take."""
    return any(
        residual.post is not None or body.post is not None or body.op.router.input_norm is not None
        for residual in model.blocks[layer].residuals
        for body in residual.bodies
        if isinstance(body.op, Experts)
    )
