"""Machines are found by files and programs: processors, memory, limits, GPUs, links; and matched to the catalogue."""

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from looked_at import GIB, MIB, PLAIN, cpuinfo, looked_at, meminfo, pci_device, smbios

from helmsman.detection.machine import find_machine
from helmsman.hwdb.detected_hardware import FoundHardware, hardware_of
from helmsman.schemas.detected import DetectedModules
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.read import parse_document

SMI = "echo 'NVIDIA GeForce RTX 4090, 24564, 23000, 00000000:01:00.0, 4, 1, 16'"


def hardware_at(place: Path, files: dict[str, str | bytes], programs: dict[str, str] | None = None) -> FoundHardware:
    record = hardware_of(find_machine(looked_at(place, {**PLAIN, **files}, programs)))
    assert parse_document(Hardware, record.hardware.to_json().encode(), "found") == record.hardware
    return record


def test_a_desktop_is_found_with_its_card(tmp_path: Path) -> None:
    modules = smbios((32 * GIB, 0x22, 6000, "DIMM_A1"), (32 * GIB, 0x22, 6000, "DIMM_B1"))
    files = {"sys/firmware/dmi/tables/DMI": modules}
    machine = find_machine(looked_at(tmp_path, {**PLAIN, **files}, {"nvidia-smi": SMI}))
    assert (machine.processor.cores, machine.processor.threads, machine.processor.sockets) == (16, 32, 1)
    assert machine.memory.modules == DetectedModules(kind="DDR5-6000", modules=2, channels=2)
    (gpu,) = machine.gpus
    assert gpu.devices == ("RTX 4090",) and gpu.link is not None and (gpu.link.generation, gpu.link.now) == (4, 1)
    record = hardware_of(machine)
    assert record.hardware.name == "this" and record.hardware.device("cpu").product == "AMD Ryzen 9 7950X"
    assert record.hardware.memory("dram").product == "DDR5-6000, 2 channels"
    assert record.hardware.memory("vram").available == int(0.9 * 23000 * MIB)
    assert record.hardware.memory("dram").available <= 0.9 * 60 * GIB
    link = record.hardware.link("dram", "vram")
    assert link is not None and link.kind == "pcie4x16"
    assert any("idle, the link is at generation 1" in line for line in record.assumed)


def test_memory_of_a_card_tells_which_it_is(tmp_path: Path) -> None:
    smi = "echo 'NVIDIA GeForce RTX 4090, 49140, 48000, 00000000:01:00.0, 4, 4, 16'"
    assert hardware_at(tmp_path, {}, {"nvidia-smi": smi}).hardware.devices[1].product == "RTX 4090 48GB"


def test_equal_cards_are_planned_together_and_others_left_out(tmp_path: Path) -> None:
    three = "; ".join(
        f"echo '{name}, 24564, 24000, 00000000:0{number}:00.0, 4, 4, 8'"
        for number, name in enumerate(
            ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090"), 1
        )
    )
    record = hardware_at(tmp_path, {}, {"nvidia-smi": three})
    assert [device.product for device in record.hardware.devices[1:]] == ["RTX 3090", "RTX 3090"]
    assert any("RTX 4090 left out" in line for line in record.assumed)


def test_the_drivers_library_is_asked_first(tmp_path: Path) -> None:
    pynvml = ModuleType("pynvml")
    answers = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda number: number,
        "nvmlDeviceGetName": lambda _: b"Tesla T4",
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=15360 * MIB, free=15000 * MIB),
        "nvmlDeviceGetPciInfo": lambda _: SimpleNamespace(busId=b"00000000:00:1E.0"),
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda _: 3,
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda _: 3,
    }
    vars(pynvml).update(answers)
    system = looked_at(tmp_path, PLAIN, {"nvidia-smi": "exit 9"}, {"nvidia-ml-py": "13"}, pynvml)
    (gpu,) = find_machine(system).gpus
    assert (gpu.name, gpu.via, gpu.where, gpu.devices) == ("Tesla T4", "nvml", "0000:00:1e.0", ("T4",))
    assert gpu.link is None  # the width is not told


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch' >&2; exit 18", "ends with 18: Failed to"),
        ("printf 'gr\\033[31mbl\\001'; exit 9", "ends with 9: gr[31mbl"),
        ("echo nonsense; exit 0", "ends with 0: nonsense"),
        ("echo 'a, b, c'; exit 0", "ends with 0"),
    ],
)
def test_a_broken_driver_is_a_problem_and_no_gpu(tmp_path: Path, script: str, says: str) -> None:
    machine = find_machine(looked_at(tmp_path, PLAIN, {"nvidia-smi": script}))
    (problem,) = machine.problems
    assert not machine.gpus and says in problem.problem and "driver" in problem.remedy
    assert [device.name for device in hardware_of(machine).hardware.devices] == ["cpu"]


def test_a_library_that_cannot_be_loaded_is_a_problem_too(tmp_path: Path) -> None:
    pynvml = ModuleType("pynvml")

    def fails() -> None:
        raise OSError("libnvidia-ml.so.1: file too short")

    vars(pynvml)["nvmlInit"] = fails
    machine = find_machine(looked_at(tmp_path, PLAIN, None, {"nvidia-ml-py": "13"}, pynvml))
    assert not machine.gpus and "file too short" in machine.problems[0].problem
    again = find_machine(looked_at(tmp_path, PLAIN, {"nvidia-smi": SMI}, {"nvidia-ml-py": "13"}, pynvml))
    assert again.gpus and not again.problems


def test_a_card_without_a_driver_is_told(tmp_path: Path) -> None:
    machine = find_machine(looked_at(tmp_path, {**PLAIN, **pci_device("0000:01:00.0", "10de:2684")}))
    assert "10de:2684" in machine.problems[0].problem and not machine.gpus


def test_radeons_are_found_by_files(tmp_path: Path) -> None:
    radeon = pci_device(
        "0000:03:00.0",
        "1002:744c",
        mem_info_vram_total=str(24 * GIB),
        mem_info_vram_used=str(GIB),
        max_link_speed="16.0 GT/s PCIe\n",
        current_link_speed="2.5 GT/s PCIe\n",
        max_link_width="16\n",
    )
    record = hardware_at(tmp_path, radeon)
    assert record.hardware.devices[1].kind == "rocm" and record.hardware.devices[1].product == "RX 7900 XTX"
    assert record.hardware.memory("vram").available == int(0.9 * 23 * GIB)
    assert {link.kind for link in record.hardware.links} == {"pcie4x16"}


def test_a_number_of_two_cards_is_taken_for_the_slower(tmp_path: Path) -> None:
    card = pci_device("0000:03:00.0", "1002:73bf", mem_info_vram_total=str(16 * GIB))
    record = hardware_at(tmp_path, card)
    assert any("may be RX 6800 XT or RX 6900 XT or RX 6800" in line for line in record.assumed)
    named = {"rocm-smi": """echo '{"card0": {"Card Series": "AMD Radeon RX 6900 XT", "PCI Bus": "0000:03:00.0"}}'"""}
    assert hardware_at(tmp_path, card, named).hardware.devices[1].product == "RX 6900 XT"


def test_intels_cards_and_chips_are_found(tmp_path: Path) -> None:
    arc = pci_device("0000:03:00.0", "8086:e20b", **{"tile0/physical_vram_size_bytes": hex(12 * GIB)})
    assert hardware_at(tmp_path / "a", arc).hardware.devices[1].kind == "xpu"
    chip = {"proc/cpuinfo": cpuinfo("Intel(R) Core(TM) Ultra 7 155H", 16, 1), **pci_device("0000:00:02.0", "8086:7d55")}
    record = hardware_at(tmp_path / "b", chip)
    assert record.hardware.devices[1].product == "Intel Arc Graphics 8-core" and not record.hardware.links
    small = hardware_at(tmp_path / "c", pci_device("0000:00:02.0", "8086:4680"))
    assert [device.kind for device in small.hardware.devices] == ["cpu"]


def test_macs_are_found(tmp_path: Path) -> None:
    sysctl = """case $2 in
machdep.cpu.brand_string) echo 'Apple M3 Max';; hw.memsize) echo 137438953472;; hw.optional.arm64) echo 1;;
hw.logicalcpu|hw.physicalcpu) echo 16;; esac"""
    profiler = """echo '{"SPDisplaysDataType": [{"sppci_model": "Apple M3 Max", "sppci_cores": "40"}]}'"""
    programs = {"sysctl": sysctl, "system_profiler": profiler}
    machine = find_machine(looked_at(tmp_path, {}, programs, name="Darwin"))
    assert machine.gpus[0].devices == ("Apple M3 Max 40-core",)
    record = hardware_of(machine)
    assert [memory.name for memory in record.hardware.memories] == ["unified"]
    assert record.hardware.device("metal").product == "Apple M3 Max 40-core"


def test_a_container_has_what_its_groups_allow(tmp_path: Path) -> None:
    group = {
        "proc/self/cgroup": "0::/docker/abc\n",
        "sys/fs/cgroup/memory.max": str(8 * GIB),
        "sys/fs/cgroup/memory.current": str(2 * GIB),
        "sys/fs/cgroup/cpu.max": "400000 100000\n",
    }
    machine = find_machine(looked_at(tmp_path, {**PLAIN, **group}))
    assert (machine.memory.total, machine.memory.allowed, machine.memory.free) == (64 * GIB, 8 * GIB, 6 * GIB)
    assert machine.quota == 4.0 and machine.memory.limited == "control group"
    record = hardware_of(machine)
    assert record.hardware.memory("dram").capacity == 8 * GIB and record.hardware.device("cpu").cores == 4
    old = {
        "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x\n",
        "sys/fs/cgroup/memory/x/memory.limit_in_bytes": str(4 * GIB),
        "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "150000",
        "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
    }
    machine = find_machine(looked_at(tmp_path / "old", {**PLAIN, **old}))
    assert (machine.memory.allowed, machine.quota) == (4 * GIB, 1.5)


def test_few_cores_do_not_read_a_sockets_memory(tmp_path: Path) -> None:
    two = {"proc/cpuinfo": cpuinfo("Intel(R) Xeon(R) Platinum 8488C", 1, 2, "hypervisor avx2 avx512f amx_tile")}
    record = hardware_at(tmp_path, two)
    host = record.hardware.device("cpu")
    assert host.cores == 1 and host.read.value == 20e9 and host.read.p90 > 2 * host.read.p10
    assert any("1 cores read" in line for line in record.assumed)


def test_an_unlisted_processor_is_of_its_class(tmp_path: Path) -> None:
    for name, flags, kind in (
        ("Intel(R) Xeon(R) Processor @ 2.10GHz", "hypervisor avx2 avx512f avx512_vnni amx_tile", "x86-server"),
        ("AMD Ryzen 3 9999X", "avx2 avx512f avx512_bf16", "x86-desktop-ddr5"),
        ("AMD Ryzen 7 9999HS", "avx2", "x86-laptop"),
        ("Intel(R) Pentium(R) CPU G4400", "sse4_2", "x86-desktop-ddr4"),
    ):
        record = hardware_at(tmp_path, {"proc/cpuinfo": cpuinfo(name, 4, 1, flags)})
        assert record.hardware.device("cpu").device_class == kind
        assert any("not in the catalogue" in line for line in record.assumed)


def test_memory_modules_that_say_nothing_are_not_believed(tmp_path: Path) -> None:
    virtual = smbios((16 * GIB, 0x07, 0, "DIMM 0"))
    cut = smbios((16 * GIB, 0x1A, 3200, "ChannelA-DIMM0"))[:-20]
    for table in (virtual, cut, b"", b"\xff" * 64, bytes(3)):
        assert find_machine(looked_at(tmp_path, {**PLAIN, "sys/firmware/dmi/tables/DMI": table})).memory.modules is None


def test_too_little_memory_is_refused(tmp_path: Path) -> None:
    machine = find_machine(looked_at(tmp_path, {**PLAIN, "proc/meminfo": meminfo(GIB // 2, GIB // 4)}))
    with pytest.raises(HardwareUnavailableError, match="too few"):
        hardware_of(machine)


def test_a_system_that_says_nothing_has_a_processor(tmp_path: Path) -> None:
    machine = find_machine(looked_at(tmp_path, {}))
    assert machine.processor.threads >= 1 and not machine.gpus
