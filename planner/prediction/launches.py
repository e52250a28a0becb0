"""Executors that launch operations from a thread of the host, ahead of the accelerator: what a pass takes then.

While long operations run the host launches those after them, so a pass takes the longer of two sums: the seconds of
its operations, and the host's seconds of all launches (E-HELM-12; HELM's Table 6.1 shows it on the L40S, where a model
of large matrices takes no longer than its bytes). Prices are of single operations, so the device of a question gets
the least time per operation that makes its decode step as long as that. On a CPU nothing runs ahead, since the same
thread computes: each operation takes its share of the launches on top. One model for every such executor: that of a
record (`Device.dispatch`), and engines with software of their own."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

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


class LaunchedWork(NamedTuple):
    """Operations of a pass that do equal work: one of them, the seconds of each, and how often (`times`) it is done."""

    task: Task
    seconds: float
    times: int


def driven(roles: Roles, model: Model, workload: Workload, weights: StoredFormat, kv: KvFormat) -> Roles:
    """The machine with the least times per operation that launching leaves its devices in a decode step; the same
    machine where nothing is launched ahead."""
    hardware = roles.hardware
    for device in hardware.devices:
        if device.dispatch is not None:
            placed = _alone(device, roles, model, workload, weights, kv)
            hardware = launched(hardware, device.name, device.dispatch, model.layers, _work(placed, device))
    return roles if hardware is roles.hardware else roles.on(hardware)


def launched(hardware: Hardware, name: str, dispatch: Dispatch, blocks: int, works: Sequence[LaunchedWork]) -> Hardware:
    """`hardware` whose device `name` does `works` of so many blocks, as `dispatch` launches them."""
    device, work = hardware.device(name), [(of.seconds, of.times) for of in works]
    total, figure = launches(works, blocks, dispatch), dispatch.seconds
    if device.kind == "cpu":
        operations = max(1, sum(of.times for of in works))
        added = {end: getattr(figure, end) * total / operations for end in _ENDS}
        return _with_device(hardware, _driven(device, "overhead", figure.model_copy(update=added)))
    least = device.launch.value if device.launch else 0.0
    floors = {end: max(least, floor(work, getattr(figure, end) * total)) for end in _ENDS}
    held = {
        end: ceiling([(max(seconds, floors[end]), count) for seconds, count in work], getattr(figure, end) * total)
        for end in _ENDS
    }
    floored = _driven(device, "launch", figure.model_copy(update=floors))
    return _with_device(hardware, _driven(floored, "launching", figure.model_copy(update=held)))


def _driven(device: Device, name: str, figure: Figure) -> Device:
    return device.model_copy(update={name: figure, "dispatch": None})


def launches(works: Sequence[LaunchedWork], blocks: int, dispatch: Dispatch) -> int:
    """How many operations the host launches for a pass: those of a block that are done sequence by sequence once more
    for every further one."""
    sequences = max((of.task.tokens for of in works), default=1)
    return sum(of.times for of in works) + dispatch.sequence * blocks * (sequences - 1)


def floor(work: Iterable[tuple[float, int]], total: float) -> float:
    """The least time per operation that makes operations take the longer of their sum and `total`; `work`: seconds of
    operations, and how many take these.

    That is the level L at which the sum of max(seconds, L) is `total`; 0 where their sum is longer."""
    longest, falling = 0.0, sorted(work, reverse=True)
    count = sum(many for _, many in falling)
    for seconds, many in falling:
        level = (total - longest) / count
        if level >= seconds:
            return level
        longest, count = longest + many * seconds, count - many
    return 0.0


def ceiling(work: Iterable[tuple[float, int]], total: float) -> float:
    """The most time of an operation that counts, so that operations count `total` in all; `work`: as in `floor`.

    That is the level H at which the sum of min(seconds, H) is `total`; the longest where their sum is no more."""
    rising = sorted(work)
    if sum(many * seconds for seconds, many in rising) <= total * (1 + _ROUNDING):
        return rising[-1][0] if rising else 0.0
    left, count = total, sum(many for _, many in rising)
    for seconds, many in rising:
        level = left / count
        if level <= seconds:
            return level
        left, count = left - many * seconds, count - many
    return rising[-1][0]


def _work(placed: Placement, device: Device) -> list[LaunchedWork]:
    """The device's operations of the mean decode step of one batch, with their seconds but for launching."""
    bare = _with_device(placed.hardware, device.model_copy(update={"dispatch": None}))
    works = works_by_price(pass_of(shaped(placed), mean_step(placed.workload)))
    return on_device(works, device.name, CostModel(bare))


def on_device(works: Works, device: str, costs: CostModel) -> list[LaunchedWork]:
    """Return what a device does in a pass, by kind of work, with its expected seconds."""
    return [
        LaunchedWork(task, costs.price(task).mid, count)
        for task, count in zip(works.kinds, works.counts, strict=True)
        if task.resource == device
    ]


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
