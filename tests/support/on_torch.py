"""Plans of a loopback accelerator as plans of a device that PyTorch drives."""

from typing import Any

from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest


def on_torch(plan: Plan, **changes: Any) -> Plan:
    """The plan with its loopback accelerator as a CUDA device, and its memory changed."""
    hardware = plan.hardware
    devices = (
        each.model_copy(update={"kind": "cuda"}) if each.kind == "loopback" else each for each in hardware.devices
    )
    memories = (each.model_copy(update=changes) if each.kind == "loopback" else each for each in hardware.memories)
    changed = hardware.model_copy(update={"devices": tuple(devices), "memories": tuple(memories)})
    return plan.model_copy(update={"hardware": changed, "hardware_sha256": digest(changed)})
