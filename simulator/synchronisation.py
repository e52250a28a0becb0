"""How often lanes wait for each other (PARK-77): the waits that a plan's order needs, with those implied left out."""

from collections.abc import Iterable

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower_tasks
from helmsman.lowering.paging import passes_of
from helmsman.lowering.placement import Placed
from helmsman.schemas.hardware import Hardware, lane_owner
from helmsman.schemas.replay_report import Waits

ALL_REDUCES = 2
"""Of a layer under tensor parallelism: after attention's output and after the feed-forward part (Shoeybi et al.,
arXiv:1909.08053, section 3). Every device waits for all others at each."""


def synchronisation(plan: Placed) -> Waits:
    """Return the waits of the plan's first decode step, of its prompt when it has none."""
    passes = passes_of(plan)
    iteration, together = passes.step(1) if plan.workload.decode_steps else passes.prompt[-1], passes.batches
    devices, lanes, used = counted(lower_tasks(plan, iteration), plan.hardware)
    shares = plan.model.layers * together
    every_layer = ALL_REDUCES * used * (used - 1)
    return Waits(devices=devices / shares, lanes=lanes / shares, tensor_parallel=every_layer)


def counted(tasks: Iterable[Task], hardware: Hardware) -> tuple[int, int, int]:
    """Waits for other devices, waits for other lanes, and devices at work in blocks.

    Lanes are queues, so what a lane waited for once its later tasks know as well: a clock per lane, of the others."""
    devices = {device.name for device in hardware.devices}
    now: dict[str, dict[str, int]] = {}
    after: list[tuple[str, dict[str, int]]] = []
    used, between, waits = set[str](), 0, 0
    for task in tasks:
        lane, owner = task.resource, lane_owner(task.resource)
        known = now.setdefault(lane, {})
        heard = set[str]()
        for dep in sorted(task.deps, reverse=True):
            other, its = after[dep]
            if other == lane or known.get(other, -1) >= dep:
                continue
            waits += 1
            news = {name: step for name, step in (*its.items(), (other, dep)) if step > known.get(name, -1)}
            known = {**known, **news}
            heard |= {lane_owner(name) for name in news}
        if owner in devices:
            between += len((heard & devices) - {owner})
            used |= {owner} if task.layer is not None else set()
        now[lane] = known
        after.append((lane, known))
    return between, waits, len(used)
