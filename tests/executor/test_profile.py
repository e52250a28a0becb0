"""The profiler: settings, and a record whose prices give back what was measured."""

import time
from dataclasses import replace

import pytest
from together import together
from virtual_link import VirtualLink

from helmsman.executor.devices import probe
from helmsman.executor.profile import copies, synthetic_stage
from helmsman.executor.profile.between_passes import measure_between_passes
from helmsman.executor.profile.record import record
from helmsman.executor.profile.run import profile
from helmsman.executor.profile.samples import (
    BetweenPassesSamples,
    BusySamples,
    CudaSamples,
    GpuSteps,
    LinkSamples,
    ProcessorProfile,
    ProcessorSamples,
    Profile,
    StageSamples,
)
from helmsman.executor.profile.settings import Loopback
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.fit import Z90, figure, quantile
from helmsman.lowering.graph import Task
from helmsman.lowering.serving_names import HOST_ATTENTION
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.schemas.errors import HardwareUnavailableError, UsageError
from helmsman.schemas.hardware import Hardware, Host
from helmsman.schemas.read import parse_document

FORMATS = ("f32", "f16", "bf16")


def test_settings_are_read_with_units_and_defaults():
    found = Loopback.parse("cores=2,vram=1GiB,link=4GB/s,latency=5us")
    assert (found.cores, found.vram, found.link, found.latency) == (2, 2**30, 4e9, pytest.approx(5e-6))
    assert Loopback.parse("cores=1") == Loopback()
    assert Loopback.parse("vram=64MiB") == Loopback(vram=64 << 20)


@together(
    "text",
    [
        "cores=0", "cores=x", "cores=-1", "cores=1.5", "vram=0", "vram=many", "vram=1", "link=0GB/s", "link=2GB/h",
        "latency=-1us", "latency=2s", "speed=3", "cores", "cores=1,cores=2", "vram=1e30GB",
        "vram=1e400GB", "link=1e400GB/s", "", " ", ",",
    ],
)  # fmt: skip
def test_bad_settings_are_usage_errors_that_name_the_setting(text):
    with pytest.raises(UsageError, match="loopback"):
        Loopback.parse(text)


def test_a_loopback_must_leave_a_core_and_memory():
    small = Machine(cpus=(0,), memory=2**30, cache_bytes=2**20)
    with pytest.raises(HardwareUnavailableError, match="host needs one"):
        profile(small, Loopback(), "2026-01-01")
    with pytest.raises(HardwareUnavailableError, match="half of the free memory"):
        profile(Machine((0, 1), 2**30, 2**20), Loopback(vram=2**30), "2026-01-01")


def test_quantiles_and_figures():
    assert [quantile([4.0, 1.0, 3.0, 2.0], q) for q in (0.0, 0.5, 1.0)] == [1.0, 2.5, 4.0]
    assert quantile([7.0], 0.9) == 7.0
    found = figure([1.0, 2.0, 3.0], "s")
    assert (found.value, found.p10, found.p90, found.n) == pytest.approx((2.0, 1.2, 2.8, 3))


READ, PEAK, OVERHEAD, ELEMENTWISE, INPUTS, REQUEST = 1e10, 1e11, 1e-6, 5e9, 1e9, 7e-6
SHARES = {10**6: 0.5, 10**8: 0.9}


def synthetic():
    """Samples of a processor that behaves exactly like the cost model's constants."""
    samples = ProcessorSamples(read=[READ] * 5, read_bytes=10**9, footprint={2**20: [4 * READ] * 5})
    for fmt in FORMATS:
        for size, share in SHARES.items():
            seconds = size / (READ * share) + OVERHEAD
            samples.linear[fmt, size] = [size / seconds / READ] * 5
            samples.attention[fmt, size] = [size / seconds / READ] * 5
        samples.gemm[fmt, "f32", 16] = [PEAK / 2] * 5
        samples.gemm[fmt, "f32", 128] = [PEAK] * 5
        samples.wide[fmt] = [PEAK / 4] * 5
    samples.linear["q4_0", 10**6] = [10**6 / (10**6 / (READ / 4) + OVERHEAD) / READ] * 5
    samples.gemm["q4_0", "int16", 32] = [PEAK / 8] * 5
    samples.inputs = dict.fromkeys(samples.gemm, [INPUTS] * 5)
    stage = StageSamples()
    stage.small[1] = [(0, OVERHEAD)] * 5
    stage.small[64] = [(4096 * 64, OVERHEAD + 4096 * 64 / ELEMENTWISE)] * 5
    for tokens in (1, 64):
        stage.lookup[tokens] = [OVERHEAD + synthetic_stage.lookup_bytes(tokens) / (READ / 10)] * 5
    for precision, share in (("f32", 8), ("bf16", 4)):
        samples.prompt_attention[precision, 64] = [OVERHEAD + synthetic_stage.attention_flops(64) / (PEAK / share)] * 5
    stage.requests = [REQUEST] * 5
    return samples, stage


LANES = ("h2d", "d2h")


def synthetic_record(**parts) -> Hardware:
    return record(synthetic_profile(**parts))


def synthetic_profile(**parts) -> Profile:
    samples, stage = synthetic()
    gemm = {key: [rate / 1.5 for rate in rates] for key, rates in samples.gemm.items()}
    slower = replace(samples, read=[READ / 1.5] * 5, gemm=gemm)
    slower.linear = {key: shares for key, shares in slower.linear.items() if key[0] == "bf16"}
    roles_ = (("cpu", "cpu", ()), ("cpu-all", "cpu", ("cpu", "loopback")), ("loopback", "loopback", ()))
    processors = tuple(
        ProcessorProfile(name, kind, 2 if name == "cpu-all" else 1, excludes, samples, stage)
        for name, kind, excludes in roles_
    )
    lanes = {name: LinkSamples(rate=[2e9] * 5, latency=[2e-5] * 5, seconds={64: [2e-5] * 5}) for name in LANES}
    return Profile(
        host=Host(cpu="a test", cores=2, ram=2**34),
        free_memory=2**33,
        date="2026-01-01",
        tool="test",
        processors=processors,
        reads={1: ProcessorSamples(read=[READ / 2] * 5, read_bytes=10**9, footprint={2**20: [2 * READ] * 5})},
        loopback=Loopback(),
        links=lanes,
        busy=BusySamples(slower, [1e9, 2e9, 1.5e9]),
        others=0.25,
        **parts,
    )


def found(hardware, what, device, **conditions):
    """The one reading of that kind with exactly these conditions."""
    (reading,) = (r for r in hardware.readings if (r.what, r.device, r.conditions) == (what, device, conditions))
    return reading.figure


def task(**changes) -> Task:
    fields = dict(
        kind="linear", op="q", layer=0, phase="decode", resource="cpu", tokens=1, bytes=10**6,
        activation_bytes=4096, flops=10**4, format="bf16", memories=("dram",), deps=(),
    )  # fmt: skip
    return Task(**{**fields, **changes})


def price(**changes) -> float:
    return CostModel(synthetic_record()).price(task(**changes)).mid


@pytest.mark.parametrize(("size", "share"), SHARES.items())
@pytest.mark.parametrize("kind", ["linear", "attention"])
def test_the_price_of_a_measured_size_is_what_was_measured(kind, size, share):
    assert price(kind=kind, bytes=size) == pytest.approx(size / (READ * share) + OVERHEAD, rel=1e-6)


@pytest.mark.parametrize(("fmt", "source"), [("q4_0", "measured"), ("q4_k", "assumed"), ("q8", "assumed")])
def test_quantised_weights_are_priced_by_what_was_measured_of_the_nearest_format(fmt, source):
    """q8 takes 1.06 bytes a value: as near to 0.56 of q4_0 as to 2 of f16, and of these two the first counts."""
    share, peak = (0.5, PEAK) if fmt == "q8" else (0.25, PEAK / 8)
    assert price(format=fmt) == pytest.approx(10**6 / (READ * share) + OVERHEAD, rel=1e-6)
    prompt = price(format=fmt, phase="prefill", tokens=128, flops=10**10)
    assert prompt == pytest.approx(10**10 / peak + OVERHEAD, rel=1e-6)
    assert CostModel(synthetic_record()).price(task(format=fmt)).source == source


def test_prices_of_products_norms_lookups_attention_and_copies_are_what_was_measured():
    assert price(phase="prefill", tokens=128, flops=10**10) == pytest.approx(10**10 / PEAK + OVERHEAD, rel=1e-6)
    assert price(phase="prefill", tokens=16, flops=10**10) == pytest.approx(2 * 10**10 / PEAK + OVERHEAD, rel=1e-6)
    wide = price(phase="prefill", tokens=16, flops=10**10, columns=1000)
    assert wide == pytest.approx(2 * 10**10 / PEAK + 64000 / INPUTS + OVERHEAD, rel=1e-3)
    small = price(kind="norm", bytes=0, flops=0, activation_bytes=40960)
    assert small == pytest.approx(OVERHEAD + 40960 / ELEMENTWISE, rel=1e-3)
    lookup = price(kind="lookup", bytes=synthetic_stage.lookup_bytes(64), flops=0, activation_bytes=0)
    assert lookup == pytest.approx(OVERHEAD + synthetic_stage.lookup_bytes(64) / (READ / 10), rel=1e-3)
    prompt = price(kind="attention", phase="prefill", tokens=64, bytes=0, flops=10**9)
    assert prompt == pytest.approx(8 * 10**9 / PEAK + OVERHEAD, rel=1e-6)
    size, share = next(iter(SHARES.items()))
    online = price(kind="attention", op=HOST_ATTENTION, tokens=12, sequences=12, bytes=size)
    assert online == pytest.approx(size / (READ * share) + OVERHEAD + 12 * REQUEST, rel=1e-6)
    copy = price(kind="transfer", resource="h2d", bytes=2 * 10**6)
    assert copy == pytest.approx(2e-5 + 1e-3, rel=1e-6)


def test_the_record_reads_back_and_gives_each_device_its_part():
    hardware = synthetic_record()
    assert parse_document(Hardware, hardware.to_json().encode(), "x") == hardware
    found = roles(hardware)
    assert (found.host.name, found.solo.name, found.accelerator.name) == ("cpu", "cpu-all", "loopback")
    assert hardware.memory("vram").shares == "dram"
    assert found.activations == "f32"


def test_readings_tell_reads_by_threads_and_footprint():
    hardware = synthetic_record()
    pieces = {"bytes": 10**9, "pattern": "scattered"}
    assert found(hardware, "read", "cpu-all", threads=1, bytes=2**20, pattern="contiguous").value == 2 * READ
    assert found(hardware, "read", "cpu-all", threads=2, bytes=2**20, pattern="contiguous").value == 4 * READ
    assert found(hardware, "read", "cpu-all", threads=1, **pieces).value == READ / 2
    assert found(hardware, "read", "cpu-all", threads=2, **pieces).n == 5


def test_the_hosts_figures_are_there_again_while_the_link_is_busy():
    """Of the formats of which they were measured then."""
    hardware = synthetic_record()
    quiet = [r for r in hardware.readings if r.device == "cpu" and "link" not in r.conditions]
    busy = [r for r in hardware.readings if r.conditions.get("link") == "busy"]
    assert len(busy) > 10 and {r.device for r in busy} == {"cpu"}
    kept = [r for r in quiet if r.what != "linear" or r.conditions["format"] == "bf16"]
    assert [{"link": "busy", **r.conditions} for r in kept] == [r.conditions for r in busy]
    assert found(hardware, "copy", "h2d", cpu="busy").value == 1.5e9


def test_the_record_says_what_a_busy_link_costs():
    """Every product of the host takes half as long again; of the accelerator, which moves the data, nothing is said."""
    hardware = synthetic_record()
    slows = hardware.link("dram", "vram").slows
    assert slows["cpu"].value == pytest.approx(0.5)
    assert set(slows) == {"cpu"} and hardware.link("vram", "dram").slows is None
    assert parse_document(Hardware, hardware.to_json().encode(), "this.json") == hardware


def test_the_share_that_others_took_is_kept():
    assert found(synthetic_record(), "others_cpu_share", "cpu-all").value == 0.25


def test_every_figure_of_a_device_is_a_distribution():
    for device in synthetic_record().devices:
        figures = [device.read, device.overhead, device.request, device.elementwise]
        figures += [compute.flops for compute in device.compute]
        figures += [share for curve in device.efficiency for share in curve.share]
        assert all(each.n > 0 for each in figures)


def test_a_record_without_room_to_run_passes_has_no_time_between_them():
    """Of a machine whose memories hold no model of that size nothing is said, and so it is assumed."""
    hardware = synthetic_record()
    small = tuple(memory.model_copy(update={"available": 1 << 20}) for memory in hardware.memories)
    found = measure_between_passes(
        hardware.model_copy(update={"memories": small}), Machine(cpus=(0,), memory=2**30, cache_bytes=2**20)
    )
    assert found.seconds == {}
    with_nothing = replace(synthetic_profile(), between_passes=found)
    assert record(with_nothing).between_passes is None


def test_small_operations_spread_around_what_was_chosen():
    samples, stage = synthetic()
    stage.small[1] = [(0, OVERHEAD * times) for times in (1, 1, 2, 10)]
    many = 4096 * 64
    stage.small[64] = [(many, OVERHEAD + many / ELEMENTWISE * times) for times in (1, 1, 2, 4)]
    one = ProcessorProfile("cpu", "cpu", 1, (), samples, stage)
    (device,) = record(Profile(Host(cpu="a test", cores=1, ram=2**34), 2**33, "2026-01-01", "test", (one,))).devices
    assert device.overhead.value == pytest.approx(OVERHEAD)
    rank = 3 * (0.5 + Z90 * 0.5 / 4**0.5)
    assert device.overhead.p10 <= OVERHEAD * 1.001
    assert device.overhead.p90 == pytest.approx((2 + 8 * (rank - 2)) * OVERHEAD)
    assert (device.overhead.n, device.elementwise.n) == (4, 4)
    assert device.elementwise.value == pytest.approx(ELEMENTWISE)
    assert 0.325 * ELEMENTWISE < device.elementwise.p10 < ELEMENTWISE


def synthetic_gpu() -> CudaSamples:
    samples, _ = synthetic()
    lane = LinkSamples([2e10] * 3, [1e-5] * 3, {size: [1e-5 + size / 2e10] * 3 for size in copies.SIZES})
    lanes = {"h2d": lane, "d2h": lane}
    return CudaSamples("a GPU", 2**33, 2**32, samples, lanes, {name: [5e9, 6e9, 6e9] for name in lanes})


def test_a_gpu_is_recorded_with_its_link_and_its_readings():
    hardware = synthetic_record(cuda=synthetic_gpu())
    gpu = hardware.device("cuda")
    assert (gpu.read.value, gpu.overheads, hardware.memory(gpu.memory).capacity) == (READ, None, 2**33)
    assert hardware.link("dram", gpu.memory).name == "cuda-h2d"
    assert found(hardware, "gemm", "cuda", format="f16", rounding="f32", tokens=128).value == PEAK
    assert found(hardware, "linear", "cuda", format="bf16", bytes=10**8).value == pytest.approx(0.9, rel=0.01)
    for lane in ("cuda-h2d", "cuda-d2h"):
        sizes = [r.conditions["bytes"] for r in hardware.readings if (r.what, r.device) == ("copy", lane)]
        assert sizes == list(copies.SIZES)
        assert next(link for link in hardware.links if link.name == lane).pageable.value == 0.3
    assert parse_document(Hardware, hardware.to_json().encode(), "x") == hardware


def test_what_steps_of_a_gpu_took_is_in_its_record():
    steps = GpuSteps({"norm": [2e-6] * 3, "append": [9e-6] * 3}, [4e-5] * 3, [5e-5] * 3)
    steps.copy["cuda-h2d"], steps.handover["cuda-d2h"] = [3e-5] * 3, [2e-5] * 3
    between = replace(synthetic_profile().between_passes or BetweenPassesSamples({}), gpu=steps)
    hardware = record(replace(synthetic_profile(), cuda=synthetic_gpu(), between_passes=between))
    gpu = hardware.device("cuda")
    assert {kind: each.value for kind, each in gpu.overheads.items()} == {"norm": 2e-6, "append": 9e-6}
    assert (gpu.prompt_launch.value, gpu.join.value) == (4e-5, 5e-5)
    links = {link.name: link for link in hardware.links}
    assert (links["cuda-h2d"].overhead.value, links["cuda-h2d"].handover) == (3e-5, None)
    assert (links["cuda-d2h"].handover.value, links["cuda-d2h"].overhead) == (2e-5, None)


def test_a_slow_link_is_measured_less_often(monkeypatch):
    monkeypatch.setattr(copies, "TIME_LIMIT_S", 0.01)
    slow = copies.measure_link(VirtualLink(2e8, 1e-6))
    assert len(slow.rate) == 1
    assert {size: len(times) for size, times in slow.seconds.items()} == dict.fromkeys(copies.SIZES, 1)
    assert slow.rate[0] == pytest.approx(2e8, rel=1e-4)
    assert slow.latency[0] == pytest.approx(1e-6 + probe.SMALL_COPY / 2e8, rel=1e-3)


def test_traffic_keeps_the_link_busy_and_lets_it_rest():
    """In virtual time: as fast as the link, one copy behind the other; and none is under way afterwards."""
    link = VirtualLink(1e9, 1e-6)
    traffic = copies.Traffic(link, 1e9)
    with traffic.flowing():
        while len(traffic.rates) <= 20:
            time.sleep(1e-3)
    moved = len(traffic.rates)
    assert traffic.rates == pytest.approx([1e9] * moved, rel=0.01)
    assert link.copies == moved + 1, "the first has none before it"
