"""Page-locked caches take more than their size, and limit the batch (PARK-53, 67, 75; Fig 11)."""

import pytest
from splits import make_layout

from helmsman.cli.plan import main
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.machine import roles
from helmsman.planner.memory import memory_use, pinned_bytes
from helmsman.planner.strategies.op_split.place import Frame, place
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
    assert main([*argv, "--output-tokens", "32", "--batch", "50"]) == 0
    assert "page-locking 14.11 GB" in capsys.readouterr().out
