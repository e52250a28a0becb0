"""Page-locked caches take more than their size, and limit the batch (PARK-53, 67, 75; Fig 11)."""

import pytest
from splits import make_layout

from helmsman.cli.plan import main
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.batches.largest import largest_batch
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.memory.page_locking import pinned_bytes
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.planner.strategies.streaming.place import Frame, place
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.workload import Workload

KEYS = 50 * 544 * 7168 * 2
"""Bytes of the keys of a block of OPT-30B: 544 tokens of 50 sequences."""


def host_use(kind: str = "cuda", stop: int = 12, batches: int = 1, **changes):
    model, machine = load_model("opt-30b"), load_hardware("a4000-7950x", None)
    devices = tuple(d if d.kind == "cpu" else d.model_copy(update={"kind": kind}) for d in machine.devices)
    work = Workload(prompt_tokens=512, output_tokens=32, batch=50, batches=batches, context=544)
    frame = Frame(model, roles(machine.model_copy(update={"devices": devices})), work)
    placed = place(frame, make_layout(model, 0, stop, **changes))
    return next(use for use in memory_use(placed) if use.memory == frame.roles.host.memory)


def test_allocations_are_powers_of_two():
    assert [pinned_bytes(size) for size in (0, 1, 4096, 4097)] == [0, 1, 4096, 8192]


@pytest.mark.parametrize("batches", [1, 3])
def test_a_streamed_kv_layer_takes_more_than_its_pageable_size(batches):
    assert 1.3 * KEYS < pinned_bytes(KEYS) == 2**29
    use = host_use(batches=batches)
    assert use.pinned == batches * 48 * 2 * (2**29 - KEYS)
    assert use.used == use.weights + use.kv + use.buffers + use.pinned


def test_only_streamed_page_locked_caches_of_gpus_take_more():
    assert host_use(stop=5).pinned == 48 * (2**29 - KEYS)
    assert host_use(stop=4).pinned == 0
    assert host_use(pinning="pageable").pinned == 0
    assert host_use(kind="loopback").pinned == 0


def test_it_is_told(capsys):
    argv = ["--model", "opt-30b", "--hw", "a4000-7950x", "--strategy", "op-split", "--prompt-tokens", "512"]
    assert main([*argv, "--output-tokens", "32", "--batch", "50", "-v"]) == 0
    assert "page-locking 14.11 GB" in capsys.readouterr().out


def frame(workload: Workload) -> Frame:
    return Frame(load_model("opt-30b"), roles(load_hardware("a4000-7950x", None)), workload)


def most(start: int, stop: int, compressed: bool) -> int:
    """Sequences in each of four batches that fit the paper's machine with units [start, stop) on its GPU."""

    def fits(work: Workload) -> bool:
        split = make_layout(load_model("opt-30b"), start, stop, weights_q4=compressed, cache_q4=compressed)
        return not shortages(memory_use(place(frame(work), split)))

    return largest_batch(Workload(prompt_tokens=512, output_tokens=32, batch=300, batches=4, context=544), fits)


@pytest.mark.parametrize(("start", "stop"), [(4, 10), (0, 9), (4, 9)])
def test_page_locked_caches_limit_plans_that_use_the_host_to_four_batches_of_60(start, stop):
    """PARK-67: the next power of two takes what the host's uncompressed weights need. 61 exactly."""
    assert 60 <= most(start, stop, True) < 70
    assert most(start, stop, False) < 60


def test_flexgen_caches_are_pageable_and_100_fit():
    """PARK-67, and the refusal names the largest batch."""
    work = Workload(prompt_tokens=512, output_tokens=32, batch=300, batches=4, context=544)
    with pytest.raises(InfeasibleError, match=r"batches of at most (1[0-4]\d)$") as refused:
        FlexGen(frame(work), True, False, CostOptions()).decide({})
    named = int(str(refused.value).rpartition(" ")[2])
    for batch, fits in ((named, True), (named + 1, False)):
        placed = FlexGen(frame(work.model_copy(update={"batch": batch})), True, False, CostOptions()).placement
        assert (not shortages(memory_use(placed))) == fits


@pytest.mark.parametrize("limit", [0, 1, 37, 63])
def test_the_largest_batch_is_found_by_halving(limit):
    asked: list[int] = []

    def fits(work: Workload) -> bool:
        asked.append(work.batch)
        return work.batch <= limit

    assert largest_batch(Workload(prompt_tokens=1, output_tokens=1, batch=64, context=2), fits) == limit
    assert len(asked) <= 6
