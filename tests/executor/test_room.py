"""Limits of memory: the least of the system's, the control groups' and the address space's."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from control_groups import limited_group

from helmsman.detection.control_groups import ControlGroup
from helmsman.executor.system.machine import Machine
from helmsman.executor.system.room import RESERVE, System, capacity, check_room, limits, room
from helmsman.schemas.errors import HardwareUnavailableError

GIB = 2**30


@pytest.fixture
def system(tmp_path: Path) -> Callable[..., System]:
    def made(groups: Mapping[str, object], belongs: str = "0::/a/b\n") -> System:
        files = {"proc/meminfo": f"MemTotal: {16 * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {8 * 2**20} kB\n"}
        files |= {"proc/self/cgroup": belongs, **{f"groups/{name}": f"{text}\n" for name, text in groups.items()}}
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return System(tmp_path / "proc", tmp_path / "groups")

    return made


def test_without_limits_it_is_what_the_system_says(system: Callable[..., System]) -> None:
    for groups in ({}, {"a/b/memory.max": "max"}, {"a/memory.max": "max", "memory.stat": "anon 3"}):
        found = system(groups)
        assert limits(found) == [] and (capacity(found), room(found)) == (16 * GIB, 8 * GIB)
    one = system({"memory/memory.limit_in_bytes": 9223372036854771712}, "4:memory:/a\n0::/\n")
    assert limits(one) == [] and room(one) == 8 * GIB


def test_files_in_memory_are_no_use(system: Callable[..., System]) -> None:
    """The second version of control groups, and the first, in which all below a group is `total`."""
    stat = f"anon 1\ninactive_file {GIB}\nactive_file {GIB // 2}\nshmem 7\n"
    found = system({"a/b/memory.max": 4 * GIB, "a/b/memory.current": 3 * GIB, "a/b/memory.stat": stat})
    assert limits(found) == [ControlGroup(4 * GIB, 3 * GIB // 2)]
    assert (capacity(found), room(found)) == (4 * GIB, 5 * GIB // 2)
    old = f"inactive_file 1\ntotal_inactive_file {GIB}\ntotal_active_file 0\n"
    names = {"limit_in_bytes": 2 * GIB, "usage_in_bytes": 3 * GIB // 2, "stat": old}
    found = system({f"memory/x/memory.{name}": text for name, text in names.items()}, "9:cpu:/y\n4:memory:/x\n0::/\n")
    assert (capacity(found), room(found)) == (2 * GIB, 3 * GIB // 2)


def test_the_least_of_a_group_and_all_above_it_counts(system: Callable[..., System]) -> None:
    of = {"a/b": (6, 1), "a": (3, 2), "": (9, 1)}
    names = {}
    for place, (limit, used) in of.items():
        names |= {f"{place}/memory.max": limit * GIB, f"{place}/memory.current": used * GIB}
    found = system(names)
    assert (capacity(found), room(found)) == (3 * GIB, GIB)


def test_in_a_container_the_hosts_path_is_not_there(system: Callable[..., System]) -> None:
    found = system({"memory.max": GIB, "memory.current": 0}, "0::/system.slice/docker-1.scope\n")
    assert (capacity(found), room(found)) == (GIB, GIB)


def test_nothing_is_left_beyond_a_limit(system: Callable[..., System]) -> None:
    assert room(system({"memory.max": GIB, "memory.current": 2 * GIB})) == 0


def test_a_system_that_tells_nothing_has_what_the_c_library_says(tmp_path: Path) -> None:
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert capacity(System(tmp_path, tmp_path)) == room(System(tmp_path, tmp_path)) == whole


def test_this_machine_has_room() -> None:
    machine = Machine.this()
    assert 0 < machine.memory <= machine.total_memory


def test_the_address_space_is_a_limit_too() -> None:
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32));"
        "from helmsman.executor.system.room import capacity, room; print(capacity(), room())"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    whole, left = map(int, done.stdout.split())
    assert whole == min(2**32, capacity()) and 0 < left < 2**32


def test_a_real_control_group_is_seen() -> None:
    script = (
        "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()));"
        "from helmsman.executor.system.room import capacity, room; print(capacity(), room())"
    )
    with limited_group(GIB // 2) as group:
        asked = [sys.executable, "-c", script, str(group)]
        done = subprocess.run(asked, check=True, capture_output=True, text=True)
    whole, left = map(int, done.stdout.split())
    assert whole == GIB // 2 and 0 < left <= GIB // 2


def test_what_has_no_room_beside_the_reserve_is_refused(system: Callable[..., System]) -> None:
    found = system({"a/memory.max": GIB, "a/memory.current": GIB // 2, "a/memory.stat": ""})
    check_room(GIB // 2 - RESERVE, "buffers", "buy more", system=found)
    with pytest.raises(HardwareUnavailableError) as caught:
        check_room(GIB // 2 - RESERVE + 1, "buffers", "buy more", system=found)
    assert str(caught.value) == "buffers take 469.76 MB of memory, and 469.76 MB are free; buy more"
