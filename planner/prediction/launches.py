"""Executors that launch operations from a thread of the host, ahead of the accelerator: what a pass takes then.

While long operations run the host launches those after them, so a pass takes the longer of two sums: the seconds of
its operations, and the host's seconds of all launches (E-HELM-12; HELM's Table 6.1 shows it on the L40S, where a model
of large matrices takes no longer than its bytes). Prices are of single operations, so the device of a question gets
the least time per operation that makes its decode step as long as that. On a CPU nothing runs ahead, since the same
thread computes: each operation takes its share of the launches on top. One model for every such executor: that of a
record (`Device.dispatch`), and engines with software of their own."""

from collections.abc import Sequence
from itertools import accumulate

from helmsman.lowering.graph import Task
from helmsman.lowering.pass_shape import pass_of
from helmsman.lowering.placement import Placement, shaped
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import Roles
from helmsman.planner.prediction.pass_figures import works_by_price
from helmsman.planner.prediction.predict import mean_step
from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import KvFormat, StoredFormat
from helmsman.schemas.hardware import Device, Dispatch, Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, Residence, Select
from helmsman.schemas.workload import Workload
from helmsman.timing.works import Works

_ENDS = ("value", "p10", "p90")

_ROUNDING = 1e-9
"""Relative difference of seconds that is none."""


def driven(roles: Roles, model: Model, workload: Workload, weights: StoredFormat, kv: KvFormat) -> Roles:
    """The machine with the least times per operation that launching leaves its devices in a decode step; the same
    machine where nothing is launched ahead."""
    hardware = roles.hardware
    for device in hardware.devices:
        if device.dispatch is not None:
            placed = _alone(device, roles, model, workload, weights, kv)
            hardware = launched(hardware, device.name, device.dispatch, model.layers, _work(placed, device))
    return roles if hardware is roles.hardware else roles.on(hardware)


def launched(
    hardware: Hardware, name: str, dispatch: Dispatch, blocks: int, tasks: Sequence[tuple[Task, float]]
) -> Hardware:
    """`hardware` whose device `name` does `tasks` of so many blocks, each with its seconds, as `dispatch` launches
    them."""
    device, work = hardware.device(name), sorted([seconds for _, seconds in tasks])
    total, figure = launches([task for task, _ in tasks], blocks, dispatch), dispatch.seconds
    if device.kind == "cpu":
        added = {end: getattr(figure, end) * total / max(1, len(work)) for end in _ENDS}
        return _with_device(hardware, _driven(device, "overhead", figure.model_copy(update=added)))
    least = device.launch.value if device.launch else 0.0
    floors = {end: max(least, floor(work, getattr(figure, end) * total)) for end in _ENDS}
    held = {
        end: ceiling([max(seconds, floors[end]) for seconds in work], getattr(figure, end) * total) for end in _ENDS
    }
    floored = _driven(device, "launch", figure.model_copy(update=floors))
    return _with_device(hardware, _driven(floored, "launching", figure.model_copy(update=held)))


def _driven(device: Device, name: str, figure: Figure) -> Device:
    return device.model_copy(update={name: figure, "dispatch": None})


def launches(tasks: Sequence[Task], blocks: int, dispatch: Dispatch) -> int:
    """How many operations the host launches for a pass: those of a block that are done sequence by sequence once more
    for every further one."""
    sequences = max((task.tokens for task in tasks), default=1)
    return len(tasks) + dispatch.sequence * blocks * (sequences - 1)


def floor(work: Sequence[float], total: float) -> float:
    """The least time per operation that makes operations of `work` seconds take the longer of their sum and `total`.

    That is the level L at which the sum of max(work, L) is `total`; 0 where their sum is longer."""
    rising = sorted(work)
    below = [0.0, *accumulate(rising)]
    for count in range(len(rising), 0, -1):
        level = (total - (below[-1] - below[count])) / count
        if level >= rising[count - 1]:
            return level
    return 0.0


def ceiling(work: Sequence[float], total: float) -> float:
    """The most time of an operation that counts, so that operations of `work` seconds count `total` in all.

    That is the level H at which the sum of min(work, H) is `total`; the longest where their sum is no more."""
    left = total
    rising = sorted(work)
    if sum(rising) <= total * (1 + _ROUNDING):
        return rising[-1] if rising else 0.0
    for place, seconds in enumerate(rising):
        level = left / (len(rising) - place)
        if level <= seconds:
            return level
        left -= seconds
    return rising[-1]


def _work(placed: Placement, device: Device) -> list[tuple[Task, float]]:
    """The device's operations of the mean decode step of one batch, and their seconds but for launching."""
    bare = _with_device(placed.hardware, device.model_copy(update={"dispatch": None}))
    works = works_by_price(pass_of(shaped(placed), mean_step(placed.workload)))
    return on_device(works, device.name, CostModel(bare))


def on_device(works: Works, device: str, costs: CostModel) -> list[tuple[Task, float]]:
    """Return the tasks of a device in a pass, in order, of each one that does the same work, and its expected
    seconds."""
    kinds = {
        number: (task, costs.price(task).mid) for number, task in enumerate(works.kinds) if task.resource == device
    }
    return [kinds[number] for number in works.order.kind if number in kinds]


def _alone(
    device: Device, roles: Roles, model: Model, workload: Workload, weights: StoredFormat, kv: KvFormat
) -> Placement:
    """Everything on `device`: blocks are alike, so a part of them launches as densely."""
    return Placement(
        model=model,
        hardware=roles.hardware,
        workload=workload,
        residence=(Residence(select=Select(), memory=device.memory, format=weights),),
        kv=(KvRule(select=Select(), memory=device.memory, format=kv),),
        compute=(ComputeRule(select=Select(), device=device.name),),
        activations=roles.activations,
    )


def _with_device(hardware: Hardware, device: Device) -> Hardware:
    devices = tuple(device if other.name == device.name else other for other in hardware.devices)
    return hardware.model_copy(update={"devices": devices})
