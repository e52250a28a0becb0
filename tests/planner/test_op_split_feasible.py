"""The search counts memory as `memory_use` does, and so finds the best split that fits: against trying everything."""

from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from op_tables import try_everything
from plans import make_hardware
from seeds import seeds
from shapes import small_model
from splits import make_frame, with_storage

from helmsman.planner.cost.model import CostOptions
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.strategies.op_split.feasible import ENDS, SplitRoom
from helmsman.planner.strategies.op_split.search import search
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.schemas.cache_use import CacheUse
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.predicted import MemoryUse
from helmsman.schemas.workload import Workload

WORK = Workload(prompt_tokens=8, output_tokens=9, context=32, batch=3)
TWICE = WORK.model_copy(update={"batches": 2})
CHUNKS = {"scores": 2, "wv": 2, "q": 3, "up": 2}
MACHINE = with_storage(make_hardware(), "nvme0", "nvme1")
LOCKING = MACHINE.model_copy(
    update={
        "devices": tuple(d.model_copy(update={"kind": "cuda"}) if d.memory == "vram" else d for d in MACHINE.devices)
    }
)
PACKED = {"weights_q4": True, "cache_q4": True}
CASES = {
    "opt": ("opt", WORK, {}, {}),
    "llama": ("llama", TWICE, {}, PACKED),
    "chunks": ("qwen3", WORK, {}, {"chunks": CHUNKS, **PACKED}),
    "reshaped": ("llama", WORK, {"reshape": True}, {"chunks": CHUNKS, **PACKED}),
    "reshaped caches": ("opt", TWICE, {"reshape": True}, {}),
    "one after the other": ("opt", WORK, {"overlap": "none"}, {"chunks": {"up": 2}, **PACKED}),
    "turns without overlap": ("opt", TWICE, {"overlap": "none"}, {"chunks": {"up": 2}, **PACKED}),
    "on the fly": ("opt", WORK, {}, {"pinning": "pin-on-transfer", "path": "bounce", "cache_q4": True}),
    "bounce": ("llama", WORK, {}, {"path": "bounce", "chunks": {"wv": 2}}),
    "fused": ("llama", WORK, {"fused": True}, PACKED),
    "chosen tokens": ("opt", WORK, {"cache": CacheUse(keep=0.5, select=0.3)}, {"chunks": {"scores": 4}, **PACKED}),
    "activations": ("opt", TWICE, {"cache": CacheUse(holds="activations")}, {}),
    "caches in 8 bits": ("llama", WORK, {"kv": "q8_0", "fused": True}, {}),
    "two ahead": ("phi3", WORK, {"prefetch": 2}, {"weights_q4": True}),
}


@pytest.mark.parametrize("draws", [12, pytest.param(40, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("hardware", [MACHINE, LOCKING], ids=["loopback", "page-locking"])
def test_bytes_are_those_of_the_placement(case, hardware, draws) -> None:
    family, work, of_frame, of_layout = case
    frame = make_frame(small_model(family), work, hardware, **of_frame)
    room = make_room(frame, **of_layout)
    rng, count = Random(7), len(room.layout.units)
    ranges = [(i, j) for i in range(count + 1) for j in range(i, count + 1)]
    for start, stop in [(0, count), (0, 0), *rng.sample(ranges, draws)]:
        compressed, ends = rng.random() < 0.5, rng.choice(ENDS)
        stored = tuple(rng.sample(["q", "k", "v", "o", "up", "down"], rng.randint(0, 3)))
        counted = room.used(np.array([start]), np.array([stop]), compressed, stored, ends)
        layout = as_asked(room.layout, start, stop, compressed, stored, ends)
        uses = {use.memory: use.used for use in memory_use(place(frame, layout))}
        assert {name: int(size[0]) for name, size in counted.items()} == uses, (start, stop, compressed, stored, ends)


def make_room(frame: Frame, chunks: dict[str, int] | None = None, **layout) -> SplitRoom:
    return SplitRoom(frame, Layout(frame.units(chunks or {}), 0, 0, storage=("nvme0", "nvme1"), **layout))


def as_asked(template: Layout, start: int, stop: int, compressed: bool, stored: tuple[str, ...], ends) -> Layout:
    inside = tuple(op for op in stored if op in {unit.op for unit in template.units[start:stop]})
    return Layout(
        template.units,
        start,
        stop,
        weights_q4=template.weights_q4 and compressed,
        cache_q4=template.cache_q4 and compressed,
        stored=inside,
        storage=template.storage if inside else (),
        path=template.path,
        pinning=template.pinning,
        ends=ends,
    )


@pytest.mark.parametrize("seed", seeds(range(6), 3))
def test_the_best_that_fits_is_found(seed: int) -> None:
    """Random capacities between the least and the most that any split takes, with storage and compression."""
    rng = Random(seed)
    frame = make_frame(small_model(rng.choice(["opt", "llama"])), rng.choice([WORK, TWICE]), MACHINE)
    options = SplitRules(compress="best", storage=("nvme0",))
    asked = OpSplit(frame, options, CostOptions())
    for _ in range(2):
        dram, vram = ranged(asked, rng)
        capacities = {"dram": dram, "vram": vram}
        memories = tuple(
            memory.model_copy(update={"available": capacities.get(memory.name, memory.available)})
            for memory in MACHINE.memories
        )
        hardware = MACHINE.model_copy(update={"memories": memories})
        compare(OpSplit(make_frame(frame.model, frame.workload, hardware), options, CostOptions()))


def ranged(asked: OpSplit, rng: Random) -> tuple[int, int]:
    """A capacity for each memory: what a split somewhere between takes."""
    count = len(asked.units)
    ends = np.array([i for i in range(count + 1) for j in range(i, count + 1)])
    stops = np.array([j for i in range(count + 1) for j in range(i, count + 1)])
    used = asked.room.used(ends, stops, rng.random() < 0.5, (), rng.choice(ENDS))
    return tuple(int(rng.choice(sorted(used[name].tolist()))) for name in ("dram", "vram"))


def compare(asked: OpSplit) -> None:
    table, choices = asked.table, (False, True)
    lacking = {}
    order = sorted(try_everything(table, asked.frame.workload.batches, False, choices, True), key=key(table, choices))
    for one in order:
        found = [missing(asked, one, ends) for ends in ENDS]
        lacking[one] = min(found)
        if lacking[one] == 0:
            break
    if lacking[one] == 0:
        lanes = replace(asked.search_options, feasible=asked._fits, flow=None, pools=(), delays=None)
        best = search(asked.table, lanes).best
        assert best.seconds == pytest.approx(one.total, rel=1e-9)
        assert (best.start, best.stop, best.from_storage, best.compressed) == (
            one.start,
            one.stop,
            one.stored,
            one.compressed,
        )
        assert not shortages(memory_use(place(asked.frame, asked.layout(best))))
        return
    with pytest.raises(InfeasibleError, match="the smallest change"):
        asked.decide({})
    assert sum(size for _, size in asked._missing(asked._nearest())) == min(lacking.values())


def key(table, choices):
    return lambda one: one.key(table, choices)


def missing(asked: OpSplit, one, ends) -> int:
    layout = as_asked(asked.room.layout, one.start, one.stop, one.compressed, one.stored, ends)
    return sum(shortages(memory_use(place(asked.frame, layout))).values())


@cache
def tried_uses() -> list[tuple[MemoryUse, ...]]:
    """What every split that may be compressed needs of every memory, with its ends anywhere."""
    asked = OpSplit(make_frame(small_model("opt"), WORK, MACHINE), SplitRules(compress="best"), CostOptions())
    tried = try_everything(asked.table, 1, False, (False, True), False)
    layouts = [
        as_asked(asked.room.layout, one.start, one.stop, one.compressed, one.stored, ends)
        for one in tried
        for ends in ENDS
    ]
    return [tuple(memory_use(place(asked.frame, layout))) for layout in layouts]


def lacks(uses: tuple[MemoryUse, ...], hardware: Hardware) -> int:
    """Bytes that a machine misses for them."""
    there = (use.model_copy(update={"available": hardware.memory(use.memory).available}) for use in uses)
    return sum(shortages(there).values())


@pytest.mark.parametrize(("dram", "vram"), [(0.2, 2), (2, 0.5), (0.9, 0.9)])
def test_the_smallest_change_is_the_least_of_all(dram: float, vram: float) -> None:
    """With less than any split takes of one memory, or of both."""
    model, options = small_model("opt"), SplitRules(compress="best")
    least = OpSplit(make_frame(model, WORK, MACHINE), options, CostOptions())
    used = {use.memory: use.used for use in memory_use(place(least.frame, least.layout(least.every_split.at(0, 0))))}
    factors = {"dram": dram, "vram": vram}
    memories = tuple(
        memory.model_copy(update={"available": int(used[memory.name] * factors.get(memory.name, 1))})
        for memory in MACHINE.memories
    )
    hardware = MACHINE.model_copy(update={"memories": memories})
    asked = OpSplit(make_frame(model, WORK, hardware), options, CostOptions())
    lacking = min(lacks(uses, hardware) for uses in tried_uses())
    assert lacking > 0
    assert sum(size for _, size in asked._missing(asked._nearest())) == lacking
    with pytest.raises(InfeasibleError, match="the smallest change"):
        asked.decide({})
