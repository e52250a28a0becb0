"""Plans of a loopback accelerator as plans of another kind of device."""

from typing import Any

from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest


def on_torch(plan: Plan, **changes: Any) -> Plan:
    """The plan with its loopback accelerator as a CUDA device, which PyTorch drives, and its memory changed."""
    return on_kind(plan, "cuda", **changes)


def on_kind(plan: Plan, kind: str, **changes: Any) -> Plan:
    """The plan with its loopback accelerator as a device of `kind`, and its memory changed."""
    hardware = plan.hardware
    devices = (each.model_copy(update={"kind": kind}) if each.kind == "loopback" else each for each in hardware.devices)
    memories = (each.model_copy(update=changes) if each.kind == "loopback" else each for each in hardware.memories)
    changed = hardware.model_copy(update={"devices": tuple(devices), "memories": tuple(memories)})
    return plan.model_copy(update={"hardware": changed, "hardware_sha256": digest(changed)})
