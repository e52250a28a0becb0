"""Task events per second of a replay, and memory as layers grow: `python -m benchmarks.simulator [--json FILE]`.

An event is the start of a task or its end. Graphs of operation splits: weights and KV come over links and from storage,
4-bit groups are expanded on a lane of their own, both devices compute. `contended`: the host's memory has less
bandwidth than its users want; `delayed`: besides, busy links slow the work of both devices. Seconds are CPU seconds of
one thread, with prices that cost nothing to look up; making the tasks is not counted. Peak memory is that of a process
of its own, native memory included."""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from benchmarks.machine import print_machine
from helmsman.lowering.graph import Task, TaskGraph
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.hardware import Compute, Device, Figure, Hardware, Link, Memory, Source
from helmsman.simulator.replay import replay, replay_stream

LAYERS = (48, 96)
STREAMED = (100, 5000)
RATES = {"wide": 1e12, "contended": 24e9, "delayed": 24e9}
"""Bytes/s of the host's memory."""

_ENDS = {"h2d": ("dram", "vram"), "d2h": ("vram", "dram"), "s2d": ("ssd", "vram")}
_MEMORIES = {**_ENDS, "cpu": ("dram",), "cuda": ("vram",), "cuda:decompress": ("vram",)}
_SPEED = {"h2d": 20e9, "d2h": 20e9, "s2d": 6e9, "cpu": 20e9, "cuda": 400e9, "cuda:decompress": 100e9}
_MB = 2**20

_Step = tuple[str, str, int]
_AHEAD: tuple[_Step, ...] = (
    ("q.weights", "h2d", 8), ("q.expand", "cuda:decompress", 40), ("k.weights", "h2d", 8),
    ("k.expand", "cuda:decompress", 40), ("v.weights", "h2d", 8), ("v.expand", "cuda:decompress", 40),
    ("o.weights", "h2d", 8), ("o.expand", "cuda:decompress", 40),
    ("up.weights", "h2d", 20), ("up.expand", "cuda:decompress", 90),
    ("down.weights", "s2d", 12), ("down.expand", "cuda:decompress", 60), ("keys", "h2d", 16), ("values", "h2d", 16),
)  # fmt: skip
_WORK: tuple[_Step, ...] = (
    ("norm1", "cuda", 0), ("q", "cuda", 32), ("k", "cuda", 32), ("v", "cuda", 32), ("append", "cuda", 1),
    ("new_kv", "d2h", 1), ("scores:0-4", "cpu", 9), ("scores:4-8", "cuda", 16), ("softmax", "cpu", 1),
    ("wv:0-4", "cpu", 9), ("wv:4-8", "cuda", 16), ("hidden", "h2d", 1), ("o", "cuda", 32), ("norm2", "cuda", 0),
    ("up:0-2", "cpu", 24), ("up:2-8", "cuda", 96),
)  # fmt: skip
"""What is streamed ahead and what is worked on in a layer: operation, lane, MiB."""


def machine(name: str) -> Hardware:
    """A host, a GPU and a drive whose transfers share the GPU's PCIe lanes; `name` of RATES."""
    slows = {"cuda": _figure(0.2), "cpu": _figure(0.5)} if name == "delayed" else None
    compute = (Compute(phase="decode", flops=_figure(1e13)),)
    return Hardware(
        name="benchmark",
        memories=(_memory("dram", RATES[name]), _memory("vram", 500e9), _memory("ssd", 7e9)),
        devices=(
            Device(name="cpu", kind="cpu", memory="dram", read=_figure(20e9), compute=compute),
            Device(name="cuda", kind="cuda", memory="vram", read=_figure(400e9), compute=compute),
        ),
        links=tuple(_link(link, *ends, slows) for link, ends in _ENDS.items()),
        sources={"benchmark": Source(kind="assumed", where="benchmarks/simulator.py")},
    )


def _figure(value: float) -> Figure:
    return Figure(value=value, p10=value, p90=value, source="benchmark")


def _memory(name: str, rate: float) -> Memory:
    size = 2**40
    return Memory(name=name, kind="dram", capacity=size, available=size, bandwidth=_figure(rate), source="benchmark")


def _link(name: str, source: str, target: str, slows: dict[str, Figure] | None) -> Link:
    shares = "h2d" if name == "s2d" else None
    rate, latency = _figure(20e9), _figure(1e-5)
    return Link(
        name=name, source_memory=source, target_memory=target, kind="pcie", bandwidth=rate, latency=latency,
        shares=shares, slows=slows,
    )  # fmt: skip


def tasks(layers: int) -> Iterator[Task]:
    """The tasks of a pass; what a layer needs may come while the two before it are worked on."""
    done: list[int] = []
    count = 0
    for layer in range(layers):
        ready: list[int] = []
        for op, lane, size in _AHEAD:
            expanding = lane == "cuda:decompress"
            deps = (count - 1,) if expanding else tuple(done[-2:-1])
            ready = [*ready[:-1], count] if expanding else [*ready, count]
            yield _task(layer, op, lane, size, deps)
            count += 1
        last = done[-1:]
        for op, lane, size in _WORK:
            deps = (*last, *ready)
            ready = []
            last = last if op == "new_kv" else [count]
            yield _task(layer, op, lane, size, deps)
            count += 1
        done = [*done[-1:], *last]


def _task(layer: int, op: str, lane: str, size: int, deps: tuple[int, ...]) -> Task:
    return Task(
        step=1, name=f"{layer}.{op}", kind="transfer" if lane in _ENDS else "linear", op=op, layer=layer,
        phase="decode", resource=lane, tokens=1, bytes=size * _MB, activation_bytes=0, flops=size * _MB, format="f16",
        memories=_MEMORIES[lane], deps=deps,
    )  # fmt: skip


def price(task: Task) -> float:
    """Seconds alone."""
    return 5e-6 + task.bytes / _SPEED[task.resource]


def events_per_second(run: Callable[[], object], count: int, repeats: int) -> dict[str, float]:
    """Median, lowest and highest of `repeats` runs of `count` tasks."""
    rates = []
    for _ in range(repeats):
        begun = time.thread_time()
        run()
        rates.append(2 * count / (time.thread_time() - begun))
    return {"median": statistics.median(rates), "low": min(rates), "high": max(rates)}


def speed(layers: int, name: str, repeats: int) -> Iterator[dict[str, object]]:
    """`replay`, which records every task, and `replay_stream`, which does not."""
    graph = TaskGraph(Iteration(1, "decode", 1, 1, 512), tuple(tasks(layers)))
    hardware, known = machine(name), {id(task): price(task) for task in graph.tasks}

    def alone(task: Task) -> float:
        return known[id(task)]

    ways = {
        "replay": lambda: replay(graph, alone, hardware),
        "replay_stream": lambda: replay_stream(graph.tasks, alone, hardware),
    }
    for way, run in ways.items():
        found = events_per_second(run, len(graph.tasks), repeats)
        yield {"what": way, "layers": layers, "tasks": len(graph.tasks), "memory": name, "events_per_second": found}


def peak(layers: int) -> tuple[int, int]:
    """(peak bytes of this process after replaying so many layers as they come, tasks)."""
    made = replay_stream(tasks(layers), price, machine("contended"))
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024, made.tasks


def memory() -> Iterator[dict[str, object]]:
    """Peak memory by number of layers, each in a new process."""
    for layers in STREAMED:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
            size, count = processes.submit(peak, layers).result()
        yield {"what": "peak", "layers": layers, "tasks": count, "bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print_machine()
    rows: list[dict[str, object]] = []
    for layers in LAYERS:
        for name in RATES:
            for row in speed(layers, name, options.repeats):
                rates = row["events_per_second"]
                print(f"{row['what']:<14}{layers:>5} layers {row['tasks']:>6} tasks  {name:<10}", _text(rates))
                rows.append(row)
    for row in memory():
        print(f"{'peak memory':<14}{row['layers']:>5} layers {row['tasks']:>6} tasks  {_mebibytes(row['bytes'])}")
        rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _text(rates: object) -> str:
    assert isinstance(rates, dict)
    return f"{rates['median']:,.0f} events/s ({rates['low']:,.0f} to {rates['high']:,.0f})"


def _mebibytes(size: object) -> str:
    assert isinstance(size, int)
    return f"{size / _MB:.1f} MiB"


if __name__ == "__main__":
    main()
