"""Devices: which CPUs and memories they get, and what is not there."""

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plans import make_hardware

from helmsman.executor._kernels import CopyEngine
from helmsman.executor.devices.base import ATTEMPTS, LinkSample
from helmsman.executor.devices.memory import BoundedMemory, view
from helmsman.executor.devices.opening import assign_cpus, open_devices
from helmsman.executor.system.interference import CpuTimes, others_share
from helmsman.executor.system.machine import Machine
from helmsman.executor.system.room import RESERVE
from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, InfeasibleError

FOUR = Machine(cpus=(2, 3, 6, 7), memory=1 << 30, cache_bytes=1 << 20)


def cpus(name: str, machine: Machine = FOUR, **loopback: Any) -> tuple[int, ...]:
    hardware = make_hardware(**loopback)
    return assign_cpus(hardware, hardware.device(name), machine)


def test_a_loopback_owns_the_last_cpus_and_the_host_gets_the_first() -> None:
    assert cpus("loopback") == (7,)
    assert cpus("loopback", cores=2) == (6, 7)
    assert cpus("cpu") == (2,)
    assert cpus("cpu-all") == (2, 3)


def test_a_host_without_a_number_of_cores_gets_what_is_left() -> None:
    hardware = make_hardware()
    free = hardware.device("cpu").model_copy(update={"cores": None})
    assert assign_cpus(hardware, free, FOUR) == (2, 3, 6)


@pytest.mark.parametrize("kind", ["cuda", "rocm", "metal"])
def test_a_device_of_another_kind_is_not_there(kind: str) -> None:
    with pytest.raises(HardwareUnavailableError, match=f"no {kind} device") as caught:
        cpus("loopback", kind=kind)
    assert caught.value.exit_code == 6


def test_more_cores_than_the_machine_has_are_not_there() -> None:
    with pytest.raises(HardwareUnavailableError, match="needs 5 CPUs where 4"):
        cpus("loopback", cores=5)
    one = Machine(cpus=(0,), memory=1 << 30, cache_bytes=1 << 20)
    with pytest.raises(HardwareUnavailableError, match="device cpu .* needs 1 CPUs where 0"):
        cpus("cpu", machine=one)


def test_devices_made_of_the_same_cores_are_not_used_together() -> None:
    with pytest.raises(BadInputError, match="made of the same cores"):
        open_devices(make_hardware(), ["cpu", "cpu-all"], FOUR)


def test_the_host_takes_as_many_threads_as_the_plan_says() -> None:
    """PARK-48: not all cores are always best."""
    record = make_hardware()
    host, *others = record.devices
    record = record.model_copy(update={"devices": (host.model_copy(update={"cores": 2}), *others)})
    three = Machine(cpus=(0, 1, 2), memory=1 << 30, cache_bytes=1 << 20)
    assert open_devices(record, ["cpu"], three).by_name["cpu"].cpus == (0, 1)
    assert open_devices(record, ["cpu"], three, 1).by_name["cpu"].cpus == (0,)


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(BadInputError, match="'gpu0'"):
        open_devices(make_hardware(), ["gpu0"], FOUR)


def test_a_memory_ends_where_its_record_says() -> None:
    memory = BoundedMemory(make_hardware().memory("vram"), 1 << 20)
    buffer = memory.alloc(1 << 19, "first")
    view(buffer, np.uint8)[:] = 1
    with pytest.raises(InfeasibleError, match="memory vram: out of memory: second needs 1.05 MB, 524.29 kB of"):
        memory.alloc(1 << 20, "second")
    memory.alloc(1 << 18, "third")


def test_memories_share_what_ram_there_is() -> None:
    """Each alone has room for what both together have not."""
    machine = Machine(cpus=FOUR.cpus, memory=RESERVE + (3 << 20), cache_bytes=1 << 20)
    memories = open_devices(make_hardware(), [], machine).memories
    memories["dram"].alloc(2 << 20, "weights")
    with pytest.raises(InfeasibleError, match="memory vram: out of memory: caches needs 2.10 MB, 2.10 MB of 3.15 MB"):
        memories["vram"].alloc(2 << 20, "caches")
    memories["vram"].alloc(1 << 20, "fewer")


def test_a_machine_without_room_says_so() -> None:
    memories = open_devices(make_hardware(), [], Machine(cpus=(0,), memory=0, cache_bytes=1)).memories
    with pytest.raises(InfeasibleError, match="out of memory"):
        memories["dram"].alloc(1, "a weight")


def test_address_space_is_taken_as_it_is_needed() -> None:
    """Not all that a memory may hold: where it is limited, threads need some of it."""

    def reserved() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    before, memory = reserved(), BoundedMemory(make_hardware().memory("dram"), 1 << 40)
    buffers = [memory.alloc(size, "a weight") for size in (1 << 20, 3, 1 << 27)]
    assert reserved() - before < 1 << 28
    assert [buffer.size for buffer in buffers] == [1 << 20, 3, 1 << 27] and memory.used == (1 << 20) + 64 + (1 << 27)


def test_a_placed_array_is_copied() -> None:
    memory = BoundedMemory(make_hardware().memory("vram"), 1 << 20)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    placed = view(memory.place(values, "values"), np.float32)
    assert np.array_equal(placed, values.ravel()) and not np.shares_memory(placed, values)


def test_a_copy_takes_latency_and_bytes_over_rate() -> None:
    memory = BoundedMemory(make_hardware().memory("dram"), 8 << 20)
    source, target = memory.place(np.full(1 << 20, 7, np.uint8), "source"), memory.alloc(1 << 20, "target")
    engine = CopyEngine(1e8, 1e-3, Machine.this().cpus[-1])
    start, end = engine.wait(engine.submit(target, 0, source, 0, 1 << 20))
    assert end - start >= 1e-3 + (1 << 20) / 1e8
    assert (view(target, np.uint8) == 7).all()


def test_the_share_of_others_is_what_is_busy_beyond_us() -> None:
    before, after = CpuTimes(busy=10, total=100, own=1), CpuTimes(busy=13, total=104, own=3)
    assert others_share(before, after) == pytest.approx(0.25)
    assert others_share(before, CpuTimes(10.1, 100.1, 1)) is None
    assert others_share(None, after) is None


def test_this_machine_has_processors_memory_and_a_cache() -> None:
    machine = Machine.this()
    assert machine.cpus and machine.memory > 1 << 28 and machine.cache_bytes >= 1 << 18


def test_a_link_is_sampled_again_while_small_copies_take_as_long_as_large_ones() -> None:
    """As they do where something else runs: their difference, which the rate is of, is nothing or negative then."""
    spans = iter([1e-3, 1e-3, 1e-3, 5e-3, 1.1e-3, 1e-4])
    sample = LinkSample.of(lambda size: next(spans), 1 << 20, 64)
    assert (sample.rate, sample.latency) == (pytest.approx((1 << 20) / 1e-3), 1e-4)


def test_the_rate_of_a_link_that_stays_disturbed_is_of_whole_copies() -> None:
    sizes: list[int] = []
    sample = LinkSample.of(lambda size: sizes.append(size) or 2e-3, 1 << 20, 64)
    assert (sample.rate, sample.latency) == (pytest.approx((1 << 20) / 2e-3), 2e-3)
    assert sizes == [1 << 20, 64] * ATTEMPTS
