"""`--hw`, `--gpu --cpu --ram --link`, and the overrides: what is accepted, what is refused, and how."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helmsman.hwdb.catalogue import find_cpu, find_gpu, read_catalogue
from helmsman.hwdb.classes import find_class, scaled
from helmsman.hwdb.compose import assumed_parts, compose, override
from helmsman.hwdb.links import default_link, raw_rate
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, HelmError, UsageError
from helmsman.schemas.hardware import Figure, Hardware
from helmsman.schemas.read import parse_document
from helmsman.schemas.units import format_rate

GIB = 2**30
GPUS = [row["name"] for row in read_catalogue("gpus")["gpus"]]
CPUS = [row["name"] for row in read_catalogue("cpus")["cpus"]]


def failure(kind: type[HelmError], *, spec: str, cache: Path | None = None) -> str:
    with pytest.raises(kind) as caught:
        load_hardware(spec, cache)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_names_are_case_insensitive() -> None:
    assert load_hardware("RTX4090-7950X", None) == load_hardware("rtx4090-7950x", None)


def test_an_unknown_name_is_a_usage_error_with_close_matches() -> None:
    assert "rtx4060-laptop" in failure(UsageError, spec="rtx4060laptop")
    assert "rtx4090-7950x" in failure(UsageError, spec="rtx4090")
    assert "known:" in failure(UsageError, spec="zzzz")
    assert "unknown hardware" in failure(UsageError, spec="x" * 5000)
    assert UsageError.exit_code == 2


def test_this_is_the_newest_profile(tmp_path: Path) -> None:
    for age, name in ((100, "m1-16gb"), (300, "rtx4090-7950x"), (200, "rtx3060-5600x")):
        path = tmp_path / f"{name}.json"
        path.write_text(load_hardware(name, None).to_json())
        os.utime(path, (age, age))
    (tmp_path / "notes.txt").write_text("not a profile")
    assert load_hardware("this", tmp_path).name == "rtx4090-7950x"


def test_a_profile_that_cannot_be_read_hides_no_older_one(tmp_path: Path) -> None:
    """Nor does what is no file: a link to nothing, a pipe, a folder."""
    told: list[str] = []
    (tmp_path / "good.json").write_text(load_hardware("rtx4060-laptop", None).to_json())
    os.utime(tmp_path / "good.json", ns=(0, 0))
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nothing")
    (tmp_path / "round.json").symlink_to(tmp_path / "round.json")
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    assert load_hardware("this", tmp_path, told.append).name == "rtx4060-laptop" and told == []
    (tmp_path / "torn.json").write_text('{"schema": ')
    assert load_hardware("this", tmp_path, told.append).name == "rtx4060-laptop"
    assert len(told) == 1 and "passed over a newer profile" in told[0] and "torn.json" in told[0]
    (tmp_path / "good.json").unlink()
    with pytest.raises(BadInputError, match=r"torn\.json"):
        load_hardware("this", tmp_path)


@pytest.mark.parametrize("cache", ["absent", "empty", None])
def test_this_without_a_profile_names_helm_profile(tmp_path: Path, cache: str | None) -> None:
    (tmp_path / "empty").mkdir()
    folder = None if cache is None else tmp_path / cache
    assert "helm-profile" in failure(HardwareUnavailableError, spec="this", cache=folder)
    assert HardwareUnavailableError.exit_code == 6


def test_a_file_is_read_back_equal(tmp_path: Path) -> None:
    machine = load_hardware("h100x2-hgx", None)
    path = tmp_path / "mine.json"
    path.write_text(machine.to_json())
    assert load_hardware(str(path), None) == machine


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not valid JSON"),
        ("[]", "JSON object"),
        ('{"schema": "helm.hardware/2"}', "schema"),
        ('{"schema": "helm.hardware/1", "name": "x", "memories": [], "devices": [], "sources": {}}', "memories"),
        ("[" * 100 + "]" * 100, "nested"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    message = failure(BadInputError, spec=str(path))
    assert says in message and str(path) in message
    assert BadInputError.exit_code == 5


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "absent.json" in failure(BadInputError, spec=str(tmp_path / "absent.json"))


@pytest.mark.parametrize("field", ["available", "bandwidth", "source"])
def test_a_file_with_a_wrong_memory_names_the_field(tmp_path: Path, field: str) -> None:
    text = load_hardware("rtx4060-laptop", None).to_dict()
    text["memories"][0][field] = -1
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(text))
    assert f"memories.0.{field}" in failure(BadInputError, spec=str(path))


@pytest.mark.parametrize("name", ["rtx4090", "NVIDIA GeForce RTX 4090", "geforce-rtx 4090", "4090", "RTX_4090"])
def test_gpus_are_found_by_the_names_people_write(name: str) -> None:
    # the laptop part is another product: the exact name wins, a bare number is ambiguous
    if name == "4090":
        with pytest.raises(UsageError, match="RTX 4090 Laptop"):
            find_gpu(name)
    else:
        assert find_gpu(name)[0].name == "RTX 4090"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("7950X", "AMD Ryzen 9 7950X"),
        ("ryzen 9 7950x", "AMD Ryzen 9 7950X"),
        ("i7-13700H", "Intel Core i7-13700H"),
        ("13th Gen Intel(R) Core(TM) i7-13700H", "Intel Core i7-13700H"),
        ("AMD Ryzen 9 7950X 16-Core Processor", "AMD Ryzen 9 7950X"),
        ("Intel(R) Core(TM) i9-10900X CPU @ 3.70GHz", "Intel Core i9-10900X"),
        ("EPYC 7H12", "AMD EPYC 7H12"),
    ],
)
def test_cpus_are_found_by_the_names_people_write(name: str, found: str) -> None:
    assert find_cpu(name)[0].name == found


def test_the_size_of_a_card_may_be_left_out_when_it_is_the_only_one() -> None:
    assert find_gpu("RTX 3060")[0].name == "RTX 3060 12GB"
    assert find_gpu("RTX 4060 Ti")[0].capacity == 8 * GIB
    assert find_gpu("NVIDIA GeForce RTX 4060 Laptop GPU")[0].name == "RTX 4060 Laptop"
    with pytest.raises(UsageError, match="A100 PCIe 80GB"):
        find_gpu("A100 PCIe")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Quadro RTX 6000", "Quadro RTX 6000 24GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada 48GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell 96GB"),
    ],
)
def test_cards_of_one_number_are_told_apart(name: str, found: str) -> None:
    assert find_gpu(name)[0].name == found
    with pytest.raises(UsageError, match="more than one GPU"):
        find_gpu("RTX 6000")


def test_every_catalogue_name_finds_itself() -> None:
    assert [find_gpu(name.lower())[0].name for name in GPUS] == GPUS
    assert [find_cpu(name.lower().replace(" ", "-"))[0].name for name in CPUS] == CPUS


@pytest.mark.parametrize("name", ["RTX 9999", "", "???", "x" * 300])
def test_an_unknown_gpu_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(name, "7950X", 64 * GIB, None)
    assert caught.value.field == "gpu"
    assert caught.value.remedy


def test_compose_takes_the_slower_end_of_the_link() -> None:
    def links(gpu: str, cpu: str) -> str:
        return default_link(find_gpu(gpu)[0], find_cpu(cpu)[0])

    assert links("RTX 4090", "7950X") == "pcie4x16"
    assert links("RTX 5090", "5950X") == "pcie4x16"
    assert links("RTX 4060", "i9-10900K") == "pcie3x8"
    assert links("RTX 5090", "9950X") == "pcie5x16"


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("pcie3x16", 15.75e9),
        ("pcie4x8", 15.75e9),
        ("PCIe 4.0 x16", 31.5e9),
        ("pcie5x16", 63.0e9),
        ("pcie-3-x4", 3.94e9),
    ],
)
def test_link_rates(name: str, rate: float) -> None:
    assert raw_rate(name) == pytest.approx(rate, rel=0.002)


@pytest.mark.parametrize("name", ["pcie", "pcie4", "pcie9x16", "pcie4x3", "nvlink", "x16", ""])
def test_unknown_links_are_usage_errors(name: str) -> None:
    with pytest.raises(UsageError, match="pcie4x16"):
        raw_rate(name)


def test_compose_says_what_it_is_made_of() -> None:
    machine = compose("rtx4090", "7950x", 64 * 10**9, "pcie3x8")
    assert [device.product for device in machine.devices] == ["AMD Ryzen 9 7950X", "RTX 4090"]
    assert machine.memory("dram").capacity == 64 * 10**9
    link = machine.link("dram", "vram")
    assert link is not None and link.kind == "pcie3x8"
    assert link.bandwidth.value == pytest.approx(0.782 * raw_rate("pcie3x8"))
    assert {"cpu", "gpu", "vram-reserve", "ram-reserve", "pcie-share"} <= machine.sources.keys()
    assert parse_document(Hardware, machine.to_json().encode(), "composed") == machine


def test_several_gpus_are_composed() -> None:
    machine = compose("2x RTX 3090", "5950X", 64 * GIB, None, 56e9)
    assert [device.name for device in machine.devices] == ["cpu", "cuda", "cuda1"]
    assert {link.kind for link in machine.links} == {"pcie4x8", "peer"}
    peer = machine.link("vram1", "vram")
    assert peer is not None and peer.bandwidth.value == 56e9 and machine.sources[peer.bandwidth.source].kind == "user"
    assert parse_document(Hardware, machine.to_json().encode(), "composed") == machine
    assert compose("2xRTX3090", "5950X", 64 * GIB, None).link("vram", "vram1") is None
    servers = compose("4x L40S", "2x Xeon Platinum 8480+", 512 * GIB, None)
    assert {link.kind for link in servers.links} == {"pcie4x16"} and len(servers.links) == 8
    assert servers.device("cpu").cores == 112


@pytest.mark.parametrize(
    ("gpu", "kind", "rate"),
    [
        ("V100 SXM 32GB", "nvlink2", 50e9),
        ("A100 SXM 80GB", "nvlink3", 300e9),
        ("H100 SXM", "nvlink4", 450e9),
        ("H200 SXM", "nvlink4", 450e9),
        ("B200", "nvlink5", 900e9),
        ("MI300X", "infinity-fabric", 64e9),
    ],
)
def test_cards_of_boards_with_a_fabric_are_joined_by_it(gpu: str, kind: str, rate: float) -> None:
    """They went through host memory, so that eight of them served less than one."""
    machine = compose(f"3x {gpu}", "Xeon Platinum 8480+", 1024 * GIB, None)
    between = [link for link in machine.links if "dram" not in (link.source_memory, link.target_memory)]
    assert [(link.kind, link.bandwidth.value) for link in between] == [(kind, pytest.approx(0.8 * rate))] * 6
    [source] = {machine.sources[link.bandwidth.source].where for link in between}
    assert "stas00/ml-engineering" in source and "0.8 of it" in source
    [told] = assumed_parts(machine)
    assert told.startswith(format_rate(0.8 * rate)) and source in told
    assert parse_document(Hardware, machine.to_json().encode(), "composed") == machine
    stated = compose(f"2x {gpu}", "Xeon Platinum 8480+", 1024 * GIB, None, 56e9)
    assert {link.kind for link in stated.links} >= {"peer"} and kind not in {link.kind for link in stated.links}
    assert not list(assumed_parts(stated)) and not list(assumed_parts(compose(gpu, "EPYC 7742", 64 * GIB, None)))


def test_a_fabric_joins_no_more_cards_than_it_has_links_for() -> None:
    """Six links of a V100, two to each other card, reach three; others go through switches."""
    counts = {
        gpu: [
            sum(link.kind.startswith("nvlink") for link in compose(f"{n}x {gpu}", "EPYC 7742", 512 * GIB, None).links)
            for n in (4, 8)
        ]
        for gpu in ("V100 SXM 32GB", "A100 SXM 80GB")
    }
    assert counts == {"V100 SXM 32GB": [12, 0], "A100 SXM 80GB": [12, 56]}


def test_the_default_between_sxm_cards_is_that_of_the_catalogues_machines() -> None:
    composed, known = compose("2x H100 SXM", "Xeon Platinum 8462Y+", GIB * 512, None), load_hardware("h100x2-hgx", None)
    rates = [machine.link("vram", "vram1") for machine in (composed, known)]
    assert [rate and rate.bandwidth.value for rate in rates] == pytest.approx([360e9] * 2)


def test_cards_in_slots_go_through_host_memory() -> None:
    for gpu in ("2x H100 PCIe", "2x A100 PCIe 80GB", "2x MI210", "2x RTX 3090"):
        machine = compose(gpu, "Xeon Platinum 8480+", 1024 * GIB, None)
        assert machine.link("vram", "vram1") is None and not list(assumed_parts(machine))


@pytest.mark.parametrize("peer", [0.0, 450.0, 1e14, float("nan")])
def test_a_rate_that_joins_no_gpus_is_refused(peer: float) -> None:
    with pytest.raises(UsageError, match="not a rate between GPUs .* 56GB/s") as caught:
        compose("2x RTX 3090", "5950X", 64 * GIB, None, peer)
    assert caught.value.field == "peer"


@pytest.mark.parametrize(
    ("gpu", "cpu", "peer", "field"),
    [
        ("9x RTX 3090", "5950X", None, "gpu"),
        ("0x RTX 3090", "5950X", None, "gpu"),
        ("2x", "5950X", None, "gpu"),
        ("RTX 3090", "99x 5950X", None, "cpu"),
        ("RTX 3090", "5950X", 56e9, "peer"),
        ("2x Apple M1 8-core", "Apple M1", None, "gpu"),
        ("Radeon 8060S", "7950X", None, "cpu"),
    ],
)
def test_impossible_numbers_of_devices_are_refused(gpu: str, cpu: str, peer: float | None, field: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(gpu, cpu, 64 * GIB, None, peer)
    assert caught.value.field == field and caught.value.remedy


def test_a_size_for_gpus_is_for_each_of_them() -> None:
    machine = override(load_hardware("rtx3090x2-5950x", None), 10 * GIB, None)
    assert [machine.memory(name).available for name in ("vram", "vram1")] == [10 * GIB, 10 * GIB]


def test_compose_without_a_gpu_is_the_cpu_alone() -> None:
    machine = compose(None, "7950X", 64 * GIB, None)
    assert [device.name for device in machine.devices] == ["cpu"]
    assert not machine.links
    with pytest.raises(UsageError, match="link"):
        compose(None, "7950X", 64 * GIB, "pcie4x16")


def test_apple_chips_are_one_memory() -> None:
    machine = compose("Apple M4 Max 40-core", "Apple M4 Max", 64 * GIB, None)
    assert [memory.name for memory in machine.memories] == ["unified"]
    assert {device.memory for device in machine.devices} == {"unified"}
    assert machine.device("cpu").read.value < machine.device("metal").read.value
    with pytest.raises(UsageError, match="one chip"):
        compose("Apple M4 Max 40-core", "7950X", 64 * GIB, None)
    with pytest.raises(UsageError, match="one chip"):
        compose("RTX 4090", "Apple M4 Max", 64 * GIB, "pcie4x16")
    with pytest.raises(UsageError, match="link"):
        compose("Apple M4 Max 40-core", "Apple M4 Max", 64 * GIB, "pcie4x16")


@pytest.mark.parametrize(
    ("gpu", "cpu", "both"),
    [
        ("Apple M3 Pro 18-core", None, ("Apple M3 Pro", "Apple M3 Pro 18-core")),
        (None, "NVIDIA GB10", ("NVIDIA GB10", "GB10")),
        ("Radeon 8060S", None, ("AMD Ryzen AI Max+ 395", "Radeon 8060S")),
    ],
)
def test_a_chip_with_its_own_gpu_is_named_by_either(gpu: str | None, cpu: str | None, both: tuple[str, str]) -> None:
    """An Apple chip was planned as if it had no GPU."""
    machine = compose(gpu, cpu, 32 * GIB, None)
    assert tuple(device.product for device in machine.devices) == both
    assert len(machine.memories) == 1


@pytest.mark.parametrize(
    ("gpu", "cpu", "problem"),
    [
        (None, "Apple M3 Pro", "one of several GPUs; name it as the `gpu`: Apple M3 Pro 14-core or"),
        ("RTX 4070", None, "CPU is not named"),
        ("Radeon 780M", None, "CPU is not named; name it as the `cpu`: AMD Ryzen"),
        (None, None, "CPU is not named"),
        (None, "2x GB10", "stands alone"),
    ],
)
def test_a_part_that_is_open_is_refused(gpu: str | None, cpu: str | None, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        compose(gpu, cpu, 32 * GIB, None)


def test_a_cpu_with_a_slot_is_the_cpu_alone_though_it_has_graphics() -> None:
    """The record says so, where nobody names the GPU that is in the chip."""
    alone = compose(None, "AMD Ryzen 7 8700G", 32 * GIB, None)
    assert [device.name for device in alone.devices] == ["cpu"]
    [told] = assumed_parts(alone)
    assert told == "the chip's own GPU, Radeon 780M, is left out: name it as `gpu` to plan with it"
    assert parse_document(Hardware, alone.to_json().encode(), "composed") == alone
    for gpu in ("Radeon 780M", "RTX 4060"):
        assert not list(assumed_parts(compose(gpu, "AMD Ryzen 7 8700G", 32 * GIB, None)))
    assert not list(assumed_parts(compose(None, "AMD Ryzen 9 7950X", 32 * GIB, None)))


@pytest.mark.parametrize(
    ("gib", "mib"), [(8, 5461), (16, 10922), (18, 12288), (24, 16384), (32, 21845), (36, 27648), (64, 49152)]
)
def test_metal_has_two_thirds_of_a_small_memory(gib: int, mib: int) -> None:
    """As `recommendedMaxWorkingSetSize` in llama.cpp's logs; three quarters were assumed of every memory."""
    memory = compose("Apple M3 Pro 18-core", None, gib * GIB, None).memory("unified")
    assert memory.available // 2**20 == mib
    others = [("Radeon 780M", "Ryzen 7 7840U"), ("GB10", None), ("Radeon 8060S", None)]
    shares = [compose(gpu, cpu, gib * GIB, None).memory("unified").available / (gib * GIB) for gpu, cpu in others]
    assert shares == [0.75] * 3


def test_macs_of_the_catalogue_have_metals_share() -> None:
    small, large = (load_hardware(name, None) for name in ("m1-16gb", "m1max-64gb"))
    assert [machine.memory("unified").available // 2**20 for machine in (small, large)] == [10922, 49152]
    assert "recommendedMaxWorkingSetSize" in small.sources[small.memory("unified").source].where


@pytest.mark.parametrize("ram", [0, -1, 10**6, 2**60])
def test_impossible_ram_is_refused(ram: int) -> None:
    with pytest.raises(UsageError, match="RAM"):
        compose("RTX 4090", "7950X", ram, None)


def test_radeons_are_rocm() -> None:
    assert compose("RX 7900 XTX", "7900X", 32 * GIB, None).devices[1].name == "rocm"


def test_override_sets_what_is_available_and_says_who_said_so() -> None:
    machine = load_hardware("rtx4060-laptop", None)
    changed = override(machine, 6 * GIB, 10 * GIB)
    assert changed.memory("vram").available == 6 * GIB
    assert changed.memory("dram").available == 10 * GIB
    assert changed.sources[changed.memory("vram").source].kind == "user"
    assert parse_document(Hardware, changed.to_json().encode(), "changed") == changed
    assert machine.memory("vram").available == 7 * GIB
    assert override(machine, None, None) is machine


@pytest.mark.parametrize("size", [0, 9 * GIB])
def test_override_beyond_the_memory_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match="vram_available"):
        override(load_hardware("rtx4060-laptop", None), size, None)
    with pytest.raises(UsageError, match="ram_available"):
        override(load_hardware("rtx4060-laptop", None), None, size * 10)


def test_one_memory_has_one_size() -> None:
    apple = load_hardware("m1-16gb", None)
    with pytest.raises(UsageError, match="ram_available: CPU and GPU share the memory unified") as caught:
        override(apple, 8 * GIB, 9 * GIB)
    assert caught.value.remedy
    assert override(apple, 8 * GIB, None).memory("unified").available == 8 * GIB
    assert override(apple, None, 9 * GIB).memory("unified").available == 9 * GIB


def test_whatever_a_user_writes_the_machine_has_a_name() -> None:
    assert compose("rtx\n4090\udcff", "7950 x", 64 * GIB, None).name == "rtx4090-7950x"


def test_override_of_vram_needs_a_gpu() -> None:
    with pytest.raises(UsageError, match="no GPU"):
        override(load_hardware("ryzen7950x-cpu", None), GIB, None)


@given(
    st.sampled_from(GPUS),
    st.sampled_from(CPUS),
    st.integers(min_value=4, max_value=2048),
    st.sampled_from(["pcie3x16", "pcie4x8", "pcie5x16", None]),
)
def test_any_pair_composes_to_a_valid_sourced_machine(gpu: str, cpu: str, ram: int, link: str | None) -> None:
    try:
        memory = None if find_gpu(gpu)[0].integrated else find_cpu(cpu)[0].memory
        machine = compose(gpu, cpu, ram * GIB, link, memory=memory)
    except UsageError as error:
        card, processor = find_gpu(gpu)[0], find_cpu(cpu)[0]
        apart = gpu not in processor.graphics if card.integrated else processor.pcie is None
        assert apart or link
        assert error.field in ("cpu", "link")
        return
    assert parse_document(Hardware, machine.to_json().encode(), "composed") == machine
    for device in machine.devices:
        known = find_class(str(device.device_class))
        assert device.read.p90 > device.read.value > device.read.p10
        assert device.read.p90 / device.read.p10 == pytest.approx(known.sustained.p90 / known.sustained.p10)


shares = st.tuples(*[st.floats(0.01, 1.0)] * 3).map(sorted)


@given(st.floats(1e6, 1e13), shares)
def test_a_class_share_keeps_its_relative_spread(amount: float, share: list[float]) -> None:
    low, mid, high = share
    result = scaled(amount, Figure(value=mid, p10=low, p90=high, source="class"))
    assert result.p10 <= result.value <= result.p90
    assert result.p90 / result.p10 == pytest.approx(high / low)
    assert result.source == "class"
