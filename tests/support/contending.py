"""Machines whose lanes contend, and random graphs of transfers, storage, expansion and compute on them."""

import random
from collections.abc import Callable, Mapping

from helmsman.lowering.graph import Task
from helmsman.schemas.hardware import Compute, Device, Figure, Hardware, Interrupts, Link, Memory, Source

MakeTask = Callable[..., Task]
GB = 10**9
ENDS = {
    "h2d": ("dram", "vram"),
    "d2h": ("vram", "dram"),
    "s2d": ("ssd0", "vram"),
    "s2h": ("ssd1", "dram"),
    "h2d:activations": ("dram", "vram"),
}
LANES = {**ENDS, "cpu": ("dram",), "cuda": ("vram",), "cuda:decompress": ("vram",)}


def figure(value: float) -> Figure:
    return Figure(value=value, p10=value, p90=value, source="test")


def memory(name: str, rate: float) -> Memory:
    return Memory(name=name, kind="dram", capacity=2**40, available=2**40, bandwidth=figure(rate), source="test")


def machine(
    dram: float,
    shares: Mapping[str, str],
    slows: Mapping[str, Mapping[str, float]] | None = None,
    carries: float | None = None,
) -> Hardware:
    """Links of 4 GB/s, the fast memories `dram` bytes/s; `shares`: which link uses another's lanes; `carries`: bytes/s
    of the lanes of h2d, where it has its own; `slows`: by link and device, what it adds to the device's work."""
    compute = (Compute(phase="decode", flops=figure(1e12)),)
    devices = (("cpu", "cpu", "dram"), ("cuda", "cuda", "vram"))
    links = [(name, ends) for name, ends in ENDS.items() if ":" not in name]
    return Hardware(
        name="test",
        memories=(memory("dram", dram), memory("vram", 10 * dram), memory("ssd0", 4e9), memory("ssd1", 4e9)),
        devices=tuple(Device(name=n, kind=k, memory=m, read=figure(1e10), compute=compute) for n, k, m in devices),
        links=tuple(
            Link(
                name=name, source_memory=source, target_memory=target, kind="pcie", bandwidth=figure(4e9),
                latency=figure(0.0), shares=shares.get(name),
                carries=figure(carries) if carries and name == "h2d" and name not in shares else None,
                slows={device: figure(extra) for device, extra in (slows or {}).get(name, {}).items()} or None,
            )
            for name, (source, target) in links
        ),
        sources={"test": Source(kind="assumed", where="test")},
    )  # fmt: skip


def crossing(
    hardware: Hardware,
    handovers: Mapping[str, float],
    joins: Mapping[str, float],
    interrupts: Mapping[str, Mapping[str, float]] | None = None,
    latency: float = 0.0,
) -> Hardware:
    """The machine with time between tasks, by link and device, and what its links' small transfers add to the work of
    processors that move them; large ones half as much."""

    def link(old: Link) -> Link:
        parts = (interrupts or {}).get(old.name, {})
        small = {
            device: Interrupts(small=figure(extra), large=figure(extra / 2)) for device, extra in parts.items()
        } or None
        handover = figure(handovers[old.name]) if old.name in handovers else None
        return old.model_copy(update={"handover": handover, "interrupts": small, "latency": figure(latency)})

    def device(old: Device) -> Device:
        return old.model_copy(update={"join": figure(joins[old.name]) if old.name in joins else None})

    return hardware.model_copy(
        update={"links": tuple(map(link, hardware.links)), "devices": tuple(map(device, hardware.devices))}
    )


def on(task: MakeTask, name: str, lane: str, size: int, deps: tuple[int, ...] = ()) -> Task:
    made = task(name, lane, size, LANES[lane], deps)
    return made._replace(kind="transfer") if lane in ENDS else made


def random_case(rng: random.Random, task: MakeTask, most: int) -> tuple[tuple[Task, ...], dict[str, float]]:
    """Tasks with equal and with zero seconds among them; dependencies reach a short way back."""
    tasks, prices = [], {}
    for i in range(rng.randint(1, most)):
        near = range(max(0, i - 6), i)
        deps = tuple(sorted(rng.sample(near, min(len(near), rng.choice([0, 1, 1, 2])))))
        seconds = rng.choice([0.0, 0.25, 0.25, rng.uniform(1e-3, 1), rng.uniform(1e-3, 1)])
        tasks.append(
            on(task, f"t{i}", rng.choice(list(LANES)), rng.choice([0, int(6e9 * rng.random() * seconds)]), deps)
        )
        prices[f"t{i}"] = seconds
    return tuple(tasks), prices
