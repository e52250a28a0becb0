"""Where a plan's serving happens: the device that computes all operations, the host beside it, and the link between."""

from dataclasses import dataclass, replace

from helmsman.executor.devices.accelerators import OPENERS
from helmsman.executor.devices.iterations import Lanes
from helmsman.executor.devices.opening import Devices, open_devices
from helmsman.executor.devices.parts import CopyEngine
from helmsman.executor.passes.phase_pass import PhasePass
from helmsman.executor.serving.move_check import check_moves
from helmsman.executor.system.machine import Machine
from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS
from helmsman.planner.serving.native_room import host_beside
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import NATIVE_KINDS, Hardware, activation_lane, expert_lane
from helmsman.schemas.plan import Plan


@dataclass(frozen=True, slots=True)
class Places:
    """Names of a plan's hardware. `accelerator` computes every operation; `host` attends where it has room for caches,
    over the links `to_host` and `to_device`. No host: there is one device, which plays the accelerator. `slots`:
    whether experts come to it when they are chosen; `away`: whether the host computes some of them."""

    accelerator: str
    host: str | None
    to_host: str | None
    to_device: str | None
    slots: bool = False
    away: bool = False

    @property
    def resources(self) -> tuple[str, ...]:
        """Devices and lanes to open."""
        links = [link for link in (self.to_host, self.to_device) if link is not None]
        devices = [device for device in (self.accelerator, self.host) if device is not None]
        experts = [expert_lane(link) for link in (links if self.away else links[1:] if self.slots else ())]
        return (*devices, *links, *(activation_lane(link) for link in links), *experts)


def places_of(plan: Plan, passes: tuple[PhasePass, PhasePass]) -> Places:
    """Raise UsageError for plans of which not one device computes everything but experts of the host beside it, or to
    which more comes than weights of that host."""
    uses = [use for one_pass in passes for use in one_pass.uses.values()]
    names = sorted({use.device for use in uses if use.op not in EXPERT_PRODUCTS})
    if len(names) > 1:
        message = "requests are served by one device that computes everything, routed experts apart"
        remedy = "plan with `strategy` vllm, whose `cpu_offload_gb` leaves weights without room to the host"
        raise UsageError(message, field="compute", value=", ".join(names), remedy=remedy)
    (accelerator,) = names
    others = sorted({use.device for use in uses} - {accelerator})
    kind = plan.hardware.device(accelerator).kind
    serving = (*NATIVE_KINDS, *OPENERS)
    if kind not in serving:
        remedy = f"serve from one of {', '.join(serving)}"
        raise UsageError("this device does not serve yet", field="device", value=accelerator, remedy=remedy)
    places = replace(_beside(plan.hardware, accelerator), slots=bool(plan.expert_slots), away=bool(others))
    if others not in ([], [places.host]):
        raise UsageError(
            "experts of served requests are computed by the device that serves, or by the host beside it",
            field="compute",
            value=", ".join(others),
            remedy="let the CPU that is linked with the device both ways compute them",
        )
    check_moves(plan, passes, accelerator, places.host)
    return places


def _beside(hardware: Hardware, accelerator: str) -> Places:
    host = host_beside(hardware, accelerator)
    if host is None:
        return Places(accelerator, None, None, None)
    here = hardware.device(accelerator).memory
    out, back = hardware.link(here, host.memory), hardware.link(host.memory, here)
    assert out is not None and back is not None, "what host_beside looks for"
    return Places(accelerator, host.name, out.name, back.name)


def open_places(plan: Plan, places: Places, machine: Machine) -> Devices:
    """Their devices and lanes. Raises HardwareUnavailableError for what this machine does not have."""
    return open_devices(plan.hardware, places.resources, machine, plan.schedule.threads)


def open_serving_lanes(devices: Devices, places: Places) -> Lanes:
    """A queue for each device; engines of the links, and for activations, which pass by what else is moved."""
    queue = devices.by_name[places.accelerator].open_queue()
    if places.host is None or places.to_host is None or places.to_device is None:
        return queue, None, None, None, None, None
    host, lanes = devices.by_name[places.host].open_queue(), devices.lanes
    caches = lanes[places.to_host].engine, lanes[places.to_device].engine
    activations = (lanes[activation_lane(link)].engine for link in (places.to_host, places.to_device))
    queries, outputs = activations
    return queue, host, *caches, queries, outputs


def expert_engines(devices: Devices, places: Places) -> dict[str, CopyEngine]:
    """By link, what brings experts to slots, and messages and sums of those that the host computes: lanes of their own,
    as what they wait for may be behind them on others."""
    links = [link for link in (places.to_host, places.to_device) if link is not None]
    lanes = {link: devices.lanes.get(expert_lane(link)) for link in links}
    return {link: lane.engine for link, lane in lanes.items() if lane is not None}
