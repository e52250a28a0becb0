"""Assumed figures of what devices cost each other, for records that lack measured ones: wide intervals, medians stay.

Profiles measure what devices that share a memory reach together, and the time between tasks. Records of data sheets,
of papers and of older profiles have no such figures. Their typical values stay what they were: a latency of a PCIe link
is that of a copy with its synchronisation already, and what was fitted to whole steps contains the time between tasks,
so that a typical value beside them would count twice. But a plan that crosses or shares may take longer than one that
does not, by as much as was seen. The figures below are 90th percentiles of that; they move an interval's upper end and
the difference of plans (`planner.prediction.sensitivity`), never a median.

A link's `overhead` is not assumed: of a PCIe link it is in the latency's interval (4 to 40 us), of a loopback link it
was at most 0.3 of 20 us. A GPU's copy engines take nothing of a processor, so only loopback links interrupt, and only
a loopback accelerator's arithmetic may be that of the host's cores.

Measured below means: by three profiles on 2 cores of an AMD EPYC (Zen 5, AVX-512 BF16/VNNI)."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations

from helmsman.lowering.nearest_format import ASSUMED
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Device, Hardware, Interrupts, Link, Memory
from helmsman.timing.pools import Pools

JOINT_SHARE = 0.7
"""Of a memory's bandwidth that its devices reach together, products of their own each: medians of 0.89 to 0.98 and 10th
percentiles down to 0.70 were measured. On an older kind of processor steps of shared matrices took 16 to 27 % longer
than bandwidth alone says: 0.79 to 0.86 of it."""

GPU_HANDOVER_S = 40e-6
"""Between a GPU and what waits for it: launching after a synchronisation takes 10 to 50 us, of which the link's latency
counts 10."""

LOOPBACK_HANDOVER_S = 10e-6
"""Between CPU threads: 1.2 to 6.0 us were measured for hand-overs, 0.9 to 3.3 for joins, and 12 for both while queues
were submitted to from Python."""

PASS_S = 400e-6
"""From the end of a pass to the start of the next: 70 to 410 us were measured, most of it until threads wake and cold
caches are filled again."""

SUBMISSION_S = 0.7e-6
"""Of a pass for every piece that lanes are handed: 0.03 to 0.65 us were measured."""

INTERRUPTED = 6.0
"""Of its work's time, added to the core that also copies for a loopback link: medians of 1.2 to 2.3 and 90th
percentiles of 1.8 to 6.4 were measured while large transfers run at 2 GB/s."""

KEPT = 0.6
"""The least share of its FLOP/s that a processor of a virtual machine is assumed to keep while another one computes:
the two may be threads of one core. 1 was measured in the median, 0.58 in 3 to 22 % of samples, for moments and in
spells."""

_GPUS = ("cuda", "rocm", "metal", "xpu")


def with_assumed(hardware: Hardware) -> Hardware:
    """The record with an assumed figure for each of the kind that it lacks; the same record where it lacks none."""
    users = _users(hardware)
    memories = tuple(_with_kept(_with_joint(m, users[m.name]), users[m.name]) for m in hardware.memories)
    begin = {device.name: _up_to(PASS_S) for device in hardware.devices}
    between = hardware.between_passes or BetweenPasses(begin=begin, submission=_up_to(SUBMISSION_S))
    changed: dict[str, object] = {"memories": memories, "between_passes": between}
    if _beside_each_other(hardware.devices):
        changed["links"] = tuple(_with_handover(link, hardware) for link in hardware.links)
        changed["devices"] = tuple(_with_join(device, hardware) for device in hardware.devices)
    return hardware.model_copy(update=changed)


def with_joint_share_alone(hardware: Hardware) -> Hardware:
    """The record whose assumed joint rates err by the assumed share of the bandwidth alone, not by what is uncertain
    about the bandwidth itself: for whoever puts one cause of error after the other to its ends."""

    def alone(memory: Memory) -> Memory:
        joint = memory.joint
        if joint is None or joint.source != ASSUMED:
            return memory
        ends = {"p10": JOINT_SHARE * joint.value, "p90": joint.value}
        return memory.model_copy(update={"joint": joint.model_copy(update=ends)})

    return hardware.model_copy(update={"memories": tuple(map(alone, hardware.memories))})


@cache
def _up_to(most: float) -> Figure:
    return Figure(value=0.0, p10=0.0, p90=most, source=ASSUMED)


def _with_joint(memory: Memory, users: Sequence[Device]) -> Memory:
    """The memory with what its `users` reach together, if it has several that nobody measured at once.

    Two ignorances of one memory add up: its bandwidth and what is left of that (`with_joint_share_alone` has the
    second only)."""
    if memory.joint is not None or not _beside_each_other(users):
        return memory
    alone = memory.bandwidth
    joint = alone.model_copy(update={"p10": JOINT_SHARE * alone.p10, "source": ASSUMED})
    return memory.model_copy(update={"joint": joint})


def _with_kept(memory: Memory, users: Sequence[Device]) -> Memory:
    """The memory with the arithmetic that its `users` keep while all compute, if one of several is a loopback."""
    measured = memory.joint_compute is not None or all(device.kind != "loopback" for device in users)
    if measured or not _beside_each_other(users):
        return memory
    return memory.model_copy(update={"joint_compute": Figure(value=1.0, p10=KEPT, p90=1.0, source=ASSUMED)})


def _users(hardware: Hardware) -> dict[str, list[Device]]:
    """By memory, the devices that read it, where it is a physical one."""
    pools = Pools(hardware)
    users: dict[str, list[Device]] = {memory.name: [] for memory in hardware.memories}
    for device in hardware.devices:
        users[pools.of_memory(device.memory)].append(device)
    return users


def _with_handover(link: Link, hardware: Hardware) -> Link:
    users = [device for device in hardware.devices if device.memory in (link.source_memory, link.target_memory)]
    handover = link.handover or _up_to(_handover(users))
    filled = link.model_copy(update={"handover": handover})
    copying = [device.name for device in users if device.kind == "loopback"]
    if link.interrupts is not None or not copying or any(name in (link.slows or {}) for name in copying):
        return filled
    taken = Interrupts(small=_up_to(0.0), large=_up_to(INTERRUPTED))
    return filled.model_copy(update={"interrupts": dict.fromkeys(copying, taken)})


def _with_join(device: Device, hardware: Hardware) -> Device:
    if device.join is not None:
        return device
    return device.model_copy(update={"join": _up_to(_handover(hardware.devices))})


def _handover(users: Iterable[Device]) -> float:
    """Seconds at most from work on one of these devices, or a copy between them, to what waits for it."""
    return GPU_HANDOVER_S if any(device.kind in _GPUS for device in users) else LOOPBACK_HANDOVER_S


def _beside_each_other(devices: Iterable[Device]) -> bool:
    """Whether two of them may work at once: they are not made of the same cores."""
    return any(b.name not in a.excludes and a.name not in b.excludes for a, b in combinations(devices, 2))
