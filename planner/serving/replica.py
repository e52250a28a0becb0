"""A replica: the devices that serve one copy of a model, and what of the machine is theirs."""

from collections.abc import Iterable
from dataclasses import dataclass

from helmsman.lowering.placement import Placed, Placement
from helmsman.planner.machine import Roles, roles
from helmsman.planner.memory.devices_used import devices_used
from helmsman.planner.serving.engine_reserve import card_count
from helmsman.planner.serving.pipeline_parallel import FIELD, stage_layers
from helmsman.planner.serving.served_rules import served_placement
from helmsman.planner.serving.tensor_parallel import divided, equal_accelerators
from helmsman.scheduler.limits import BLOCK
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import scaled_figure
from helmsman.schemas.hardware import Device, Hardware
from helmsman.schemas.model import Model


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """How a plan is served.

    `tensor_parallel`: equal accelerators that divide every layer's weights, heads and caches (NEO-30).
    `pipeline_parallel`: stages of layers that follow each other, each on accelerators of its own (APEX-39).
    `utilisation`: share of an accelerator's capacity for weights and caches. `host_share`: part of the host's node that
    is the replica's; None: that of its accelerators among the node's (NEO-32). `batch_tokens`, `sequences`: most tokens
    and requests in a pass. `gpu_tokens`, `cpu_tokens`: KV tokens in each cache at most. `chunk`, `block`, `cohorts`: as
    in `Limits`. `snapshots`: states of prompts that are kept for others. What is None is as `planner.serving.kv_budget`
    has it, or the engine that the plan is for. `stores`: whether a host that does not attend keeps the caches of
    requests that make way. Raises UsageError."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    utilisation: float | None = None
    host_share: float | None = None
    batch_tokens: int | None = None
    chunk: int | None = None
    sequences: int | None = None
    block: int = BLOCK
    gpu_tokens: int | None = None
    cpu_tokens: int | None = None
    cohorts: int = 1
    snapshots: int | None = None
    stores: bool = False

    def __post_init__(self) -> None:
        for field in ("utilisation", "host_share"):
            share = getattr(self, field)
            if share is not None and not 0 < share <= 1:
                raise UsageError("not a share", field=field, value=share, remedy="more than 0, at most 1")
        counts = {
            "tensor_parallel": 1,
            "pipeline_parallel": 1,
            "batch_tokens": 1,
            "chunk": 0,
            "sequences": 1,
            "block": 1,
            "cohorts": 1,
        }
        for field, least in {**counts, "gpu_tokens": self.block, "cpu_tokens": 0, "snapshots": 0}.items():
            count = getattr(self, field)
            if count is not None and count < least:
                raise UsageError("too few", field=field, value=count, remedy=f"at least {least}")


@dataclass(frozen=True)
class Replica:
    """The work that each of `accelerators` does, on the replica's part of the machine: the plan, or each one's part of
    every layer where they divide them (`parts`), of all layers although it has those of its stage only.

    `model`: the whole one, as the host's caches and attention have it. `layers`: of each stage, whose accelerators
    follow those of the stage before."""

    plan: Placement
    model: Model
    accelerators: tuple[Device, ...]
    parts: int
    layers: tuple[int, ...]
    host: Device

    @property
    def whole(self) -> bool:
        """Whether nothing is divided: the plan says what is where."""
        return self.parts == len(self.layers) == 1

    @property
    def hardware(self) -> Hardware:
        """The replica's part of the machine."""
        return self.plan.hardware

    @property
    def away(self) -> Device | None:
        """The accelerator between whose memory and the host's caches move; None without such memory."""
        return next((device for device in self.accelerators if device.memory != self.host.memory), None)


def replica_of(placed: Placed, options: ReplicaOptions) -> Replica:
    """The replica that serves `placed`. Raises UsageError where machine or model do not divide as asked."""
    placed = served_placement(placed)
    machine = roles(placed.hardware)
    parts = _parts(placed, machine, options)
    layers = stage_layers(placed.model, options.pipeline_parallel)
    whole = parts == len(layers) == 1
    mine = _working(placed, machine) if whole else _dividing(placed, machine, options, parts)
    host = machine.host if mine else machine.solo
    share = options.host_share or _node_share(machine, _cards(mine))
    hardware = _with_share(placed.hardware, host, share)
    plan = _moved(placed, hardware) if whole else divided(placed, hardware, mine[0], parts)
    return Replica(plan, placed.model, mine, parts, layers, hardware.device(host.name))


def _working(placed: Placed, roles: Roles) -> tuple[Device, ...]:
    used = devices_used(placed)
    return tuple(device for device in roles.accelerators if device.name in used)


def _parts(placed: Placed, roles: Roles, options: ReplicaOptions) -> int:
    """Return how many parts of every layer there are still to make: one where the plan's accelerator is as many cards
    as are asked for."""
    wanted = options.tensor_parallel
    alone = _working(placed, roles)
    return 1 if len(alone) == 1 and card_count(alone[0]) == wanted else wanted


def _dividing(placed: Placed, roles: Roles, options: ReplicaOptions, parts: int) -> tuple[Device, ...]:
    """Equal accelerators for all parts of all stages. Raises UsageError where there are fewer, or the plan has its
    stages elsewhere."""
    stages = options.pipeline_parallel
    if stages == 1:
        return equal_accelerators(roles, parts)
    mine = equal_accelerators(roles, parts * stages, FIELD, stages)
    used = devices_used(placed)
    if not {device.name for device in mine} & set(used):
        remedy = f"plan for {mine[0].name}, or leave it out"
        raise UsageError(f"the plan works on {', '.join(used)} alone", field=FIELD, value=stages, remedy=remedy)
    return mine


def _node_share(roles: Roles, mine: int) -> float:
    """The replica's cards, `mine`, as a part of all those nearest to its host."""
    near = _cards(device for device in roles.hardware.devices if device.kind != "cpu" and _nearest(roles, device))
    return min(1.0, mine / near) if mine and near else 1.0


def _cards(accelerators: Iterable[Device]) -> int:
    """Return how many cards accelerators are, of which one may be several."""
    return sum(map(card_count, accelerators))


def _nearest(roles: Roles, device: Device) -> bool:
    """Whether no other CPU's memory is nearer to `device` than the host's: links as fast may begin later."""
    hosts = dict.fromkeys(cpu.memory for cpu in roles.hardware.devices if cpu.kind == "cpu")
    links = {host: roles.hardware.link(host, device.memory) for host in hosts}
    reached = {host: (link.bandwidth.value, -link.latency.value) for host, link in links.items() if link is not None}
    return bool(reached) and reached.get(roles.host.memory) == max(reached.values())


def _with_share(hardware: Hardware, host: Device, share: float) -> Hardware:
    """The machine whose host has `share` of its memory, bandwidth and arithmetic."""
    if share == 1.0:
        return hardware
    memory = hardware.memory(host.memory)
    compute = tuple(figure.model_copy(update={"flops": scaled_figure(figure.flops, share)}) for figure in host.compute)
    less = host.model_copy(update={"read": scaled_figure(host.read, share), "compute": compute})
    room = {"capacity": int(memory.capacity * share), "available": int(memory.available * share)}
    part = memory.model_copy(update={**room, "bandwidth": scaled_figure(memory.bandwidth, share)})
    devices = tuple(less if device.name == host.name else device for device in hardware.devices)
    memories = tuple(part if other.name == memory.name else other for other in hardware.memories)
    return hardware.model_copy(update={"devices": devices, "memories": memories})


def _moved(placed: Placed, hardware: Hardware) -> Placement:
    """Return the same rules on `hardware`."""
    rules = placed.residence, placed.kv, placed.compute
    others = placed.activations, placed.schedule, placed.expert_slots
    return Placement(placed.model, hardware, placed.workload, *rules, *others)
