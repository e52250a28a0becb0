from collections.abc import Callable

import pytest

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_search import build_plan
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.scheduler.iteration import single_stream
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.hardware import Compute, Device, Figure, Hardware, Link, Memory, Source
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.trace import Probe, Span, Trace, TraceInfo
from helmsman.schemas.workload import Workload

Slow = Callable[[Task, int], float]


def figure(value: float) -> Figure:
    return Figure(value=value, p10=value * 0.9, p90=value * 1.1, source="test")


@pytest.fixture
def hardware() -> Hardware:
    """A CPU (20 GB/s) and a small accelerator (100 GB/s) with its own memory."""

    def memory(name: str, rate: float) -> Memory:
        return Memory(name=name, kind="dram", capacity=2**30, available=2**30, bandwidth=figure(rate), source="test")

    def device(name: str, kind: str, memory: str, rate: float, flops: float) -> Device:
        peaks = tuple(Compute(phase=phase, flops=figure(flops)) for phase in ("prefill", "decode"))
        return Device(name=name, kind=kind, memory=memory, read=figure(rate), compute=peaks)

    def link(name: str, source: str, target: str) -> Link:
        rate, latency = figure(2e9), figure(2e-6)
        return Link(name=name, source_memory=source, target_memory=target, kind="x", bandwidth=rate, latency=latency)

    return Hardware(
        name="test",
        memories=(memory("dram", 25e9), memory("vram", 110e9)),
        devices=(device("cpu", "cpu", "dram", 20e9, 1e15), device("cuda", "cuda", "vram", 100e9, 1e15)),
        links=(link("h2d", "dram", "vram"), link("d2h", "vram", "dram")),
        sources={"test": Source(kind="assumed", where="test")},
    )


@pytest.fixture
def plan(hardware: Hardware) -> Plan:
    """Four blocks, two of them on the CPU; 8 prompt and 6 output tokens."""
    dense = DenseModel(
        name="tiny", family="llama", layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=256,
        max_context=1024, activation="silu", gated=True, norm="rms", norm_eps=1e-6,
        position=Rope(theta=1e4, rotary_dim=16), source="test",
    )  # fmt: skip
    workload = Workload(prompt_tokens=8, output_tokens=6, context=20)
    split = LayerSplit(described(dense), roles(hardware), workload, SplitQuestion(), CostModel(hardware))
    return build_plan(split, 3, {"corrections": True, "l3_blend": False})


@pytest.fixture
def run(plan: Plan) -> Callable[..., Trace]:
    """run(slow, runs, gap, probes): a measured Trace in which each task takes its price x slow(task, run)
    and `gap` seconds pass before every pass."""
    costs = CostModel(plan.hardware)

    def make(
        slow: Slow = lambda task, run: 1.0,
        runs: int = 1,
        gap: float = 0.0,
        probes: tuple[Probe, ...] = (),
        workload: Workload = plan.workload,
    ) -> Trace:
        spans: list[Span] = []
        for number in range(runs):
            now = 0.0
            for iteration in single_stream(workload):
                now += gap
                for task in lower(plan, iteration).tasks:
                    end = now + costs.price(task).mid * slow(task, number)
                    spans.append(measured_span(task, number, iteration.index, now, end))
                    now = end
        notes = {"prompt_tokens": workload.prompt_tokens}
        info = TraceInfo(source="measured", plan_sha256=digest(plan), runs=runs, probes=probes, notes=notes)
        return Trace(info, spans)

    return make


def measured_span(task: Task, run: int, iteration: int, start: float, end: float) -> Span:
    layer = -1 if task.layer is None else task.layer
    size, flops = task.bytes, float(task.flops)
    names = (task.phase, layer, task.op, task.resource)
    return Span(run, "measured", task.id, iteration, 0, *names, start, end, size, flops)
