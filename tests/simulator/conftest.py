from collections.abc import Callable

import pytest

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.placement import Placement
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.hardware import Compute, Device, Figure, Hardware, Link, Memory, Source
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Residence, Schedule, Select
from helmsman.schemas.workload import Workload


def figure(value: float) -> Figure:
    return Figure(value=value, p10=value, p90=value, source="test")


def memory(name: str, bandwidth: float, shares: str | None = None) -> Memory:
    return Memory(
        name=name, kind="dram", capacity=2**40, available=2**40, bandwidth=figure(bandwidth),
        source="test", shares=shares,
    )  # fmt: skip


def device(name: str, memory: str, read: float) -> Device:
    peak = Compute(phase="decode", flops=figure(read * 4))
    return Device(name=name, kind="cpu", memory=memory, read=figure(read), compute=(peak,))


def link(name: str, source: str, target: str) -> Link:
    rate, latency = figure(2e9), figure(2e-5)
    return Link(name=name, source_memory=source, target_memory=target, kind="test", bandwidth=rate, latency=latency)


@pytest.fixture
def hardware() -> Hardware:
    """A host (30 GB/s) and an accelerator whose memory is a part of the host's (as the loopback's is)."""
    return Hardware(
        name="test",
        memories=(memory("dram", 30e9), memory("vram", 30e9, shares="dram"), memory("far", 5e9)),
        devices=(device("cpu", "dram", 24e9), device("acc", "vram", 20e9)),
        links=(link("h2d", "dram", "vram"), link("d2h", "vram", "dram")),
        sources={"test": Source(kind="assumed", where="test")},
    )


@pytest.fixture
def task() -> Callable[..., Task]:
    """task(name, lane, bytes, memories, deps): a task whose other fields do not matter here."""

    def make(name: str, lane: str, size: int, memories: tuple[str, ...], deps: tuple[int, ...] = ()) -> Task:
        return Task(
            name=name, kind="linear", op="q", layer=0, phase="decode", resource=lane, tokens=1, bytes=size,
            activation_bytes=0, flops=1, format="f16", memories=memories, deps=deps,
        )  # fmt: skip

    return make


@pytest.fixture
def graph() -> Callable[..., TaskGraph]:
    def make(*tasks: Task) -> TaskGraph:
        return TaskGraph(Iteration(1, "decode", 1, 1, 10), tasks)

    return make


@pytest.fixture
def model() -> Model:
    dense = DenseModel(
        name="tiny", family="llama", layers=6, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=256,
        max_context=2**20, activation="silu", gated=True, norm="rms", norm_eps=1e-6,
        position=Rope(theta=1e4, rotary_dim=16), source="test",
    )  # fmt: skip
    return described(dense)


@pytest.fixture
def placement(hardware: Hardware, model: Model) -> Callable[..., Placement]:
    """placement(workload, kind): `split` runs blocks 0-3 on the CPU; `streamed` keeps their weights there
    but computes everything on the accelerator, with a prefetch of two transfers."""
    low, rest = Select(layers=LayerRange(start=0, stop=4)), Select()
    homes = tuple(
        Residence(select=s, memory=m, format="f16")
        for s, m in ((Select(names="embedding*"), "dram"), (low, "dram"), (rest, "vram"))
    )
    kv = tuple(KvRule(select=s, memory=m, format="f16") for s, m in ((low, "dram"), (rest, "vram")))
    split = (
        ComputeRule(select=Select(names="embedding"), device="cpu"),
        ComputeRule(select=low, device="cpu"),
        ComputeRule(select=rest, device="acc"),
    )
    kinds = {
        "split": (split, Schedule()),
        "streamed": ((split[0], split[2]), Schedule(overlap="next-layer", prefetch=2)),
    }

    def make(workload: Workload, kind: str = "split") -> Placement:
        compute, schedule = kinds[kind]
        return Placement(model, hardware, workload, homes, kv, compute, schedule=schedule)

    return make
