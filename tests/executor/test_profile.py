"""The profiler: settings, and a record whose prices give back what was measured."""

import pytest

from helmsman.executor.machine import Machine
from helmsman.executor.profile import buffers, copies, inplace, processor
from helmsman.executor.profile.record import ProcessorProfile, Profile, record
from helmsman.executor.profile.run import profile, steps
from helmsman.executor.profile.samples import InplaceSamples, LinkSamples, ProcessorSamples
from helmsman.executor.profile.settings import Loopback
from helmsman.hwdb.fit import figure, quantile
from helmsman.lowering.graph import Task
from helmsman.planner.costs import CostModel
from helmsman.planner.machine import roles
from helmsman.schemas.errors import HardwareUnavailableError, UsageError
from helmsman.schemas.hardware import Hardware, Host
from helmsman.schemas.read import parse_document

FORMATS = ("f32", "f16", "bf16")


def test_settings_are_read_with_units_and_defaults():
    found = Loopback.parse("cores=2,vram=1GiB,link=4GB/s,latency=5us")
    assert (found.cores, found.vram, found.link, found.latency) == (2, 2**30, 4e9, pytest.approx(5e-6))
    assert Loopback.parse("") == Loopback()
    assert Loopback.parse("vram=64MiB") == Loopback(vram=64 << 20)


@pytest.mark.parametrize(
    "text",
    [
        "cores=0", "cores=x", "cores=-1", "cores=1.5", "vram=0", "vram=many", "vram=1", "link=0GB/s", "link=2GB/h",
        "latency=-1us", "latency=2s", "speed=3", "cores", "cores=1,cores=2", "vram=1e30GB",
    ],
)  # fmt: skip
def test_bad_settings_are_usage_errors_that_name_the_setting(text):
    with pytest.raises(UsageError, match="--loopback"):
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


READ, PEAK, OVERHEAD, ELEMENTWISE = 1e10, 1e11, 1e-6, 5e9
SHARES = {10**6: 0.5, 10**8: 0.9}


def synthetic():
    """Samples of a processor that behaves exactly like the cost model's constants."""
    samples = ProcessorSamples(read=[READ] * 5)
    for fmt in FORMATS:
        for size, share in SHARES.items():
            seconds = size / (READ * share) + OVERHEAD
            samples.linear[fmt, size] = [size / seconds / READ] * 5
            samples.attention[fmt, size] = [size / seconds / READ] * 5
        samples.gemm[fmt, 16] = [PEAK / 2] * 5
        samples.gemm[fmt, 128] = [PEAK] * 5
        samples.wide[fmt] = [PEAK / 4] * 5
    stage = InplaceSamples()
    stage.small[1] = [(0, OVERHEAD)] * 5
    stage.small[64] = [(4096 * 64, OVERHEAD + 4096 * 64 / ELEMENTWISE)] * 5
    for tokens in (1, 64):
        stage.lookup[tokens] = [OVERHEAD + inplace.lookup_bytes(tokens) / (READ / 10)] * 5
    stage.attention[64] = [OVERHEAD + inplace.attention_flops(64) / (PEAK / 8)] * 5
    return samples, stage


def synthetic_record() -> Hardware:
    samples, stage = synthetic()
    roles_ = (("cpu", "cpu", ()), ("cpu-all", "cpu", ("cpu", "loopback")), ("loopback", "loopback", ()))
    processors = tuple(
        ProcessorProfile(name, kind, 2 if name == "cpu-all" else 1, excludes, samples, stage)
        for name, kind, excludes in roles_
    )
    lane = LinkSamples(rate=[2e9] * 5, latency=[2e-5] * 5, seconds={64: [2e-5] * 5})
    host = Host(cpu="a test", cores=2, ram=2**34)
    return record(Profile(host, 2**33, "2026-01-01", "test", processors, Loopback(), {"h2d": lane, "d2h": lane}))


def price(**changes) -> float:
    fields = dict(
        id="1/0.q", kind="linear", op="q", layer=0, phase="decode", resource="cpu", tokens=1, bytes=10**6,
        activation_bytes=4096, flops=10**4, format="bf16", memories=("dram",), deps=(),
    )  # fmt: skip
    return CostModel(synthetic_record()).price(Task(**{**fields, **changes})).mid


@pytest.mark.parametrize(("size", "share"), SHARES.items())
@pytest.mark.parametrize("kind", ["linear", "attention"])
def test_the_price_of_a_measured_size_is_what_was_measured(kind, size, share):
    assert price(kind=kind, bytes=size) == pytest.approx(size / (READ * share) + OVERHEAD, rel=1e-6)


def test_prices_of_products_norms_lookups_attention_and_copies_are_what_was_measured():
    assert price(phase="prefill", tokens=128, flops=10**10) == pytest.approx(10**10 / PEAK + OVERHEAD, rel=1e-6)
    assert price(phase="prefill", tokens=16, flops=10**10) == pytest.approx(2 * 10**10 / PEAK + OVERHEAD, rel=1e-6)
    small = price(kind="norm", bytes=0, flops=0, activation_bytes=40960)
    assert small == pytest.approx(OVERHEAD + 40960 / ELEMENTWISE, rel=1e-3)
    lookup = price(kind="lookup", bytes=inplace.lookup_bytes(64), flops=0, activation_bytes=0)
    assert lookup == pytest.approx(OVERHEAD + inplace.lookup_bytes(64) / (READ / 10), rel=1e-3)
    prompt = price(kind="attention", phase="prefill", tokens=64, bytes=0, flops=10**9)
    assert prompt == pytest.approx(8 * 10**9 / PEAK + OVERHEAD, rel=1e-6)
    copy = price(kind="transfer", resource="h2d", bytes=2 * 10**6)
    assert copy == pytest.approx(2e-5 + 1e-3, rel=1e-6)


def test_the_record_reads_back_and_gives_each_device_its_part():
    hardware = synthetic_record()
    assert parse_document(Hardware, hardware.to_json().encode(), "x") == hardware
    found = roles(hardware)
    assert (found.host.name, found.solo.name, found.accelerator.name) == ("cpu", "cpu-all", "loopback")
    assert hardware.memory("vram").shares == "dram"
    assert found.activations == "f32"


def test_a_real_profile_has_every_part(monkeypatch):
    """The whole profiler at a small size: shares near or below 1, distributions ordered, lanes near their setting."""
    monkeypatch.setattr(processor, "PAIRS", 3)
    monkeypatch.setattr(copies, "PAIRS", 3)
    monkeypatch.setattr(processor, "SLICE_S", 5e-4)
    monkeypatch.setattr(processor, "SHAPES", ((256, 512), (1024, 512)))
    monkeypatch.setattr(processor, "GEMM_SHAPE", (512, 512))
    monkeypatch.setattr(processor, "GEMM_TOKENS", (4, 64))
    monkeypatch.setattr(processor, "CONTEXTS", ((32, 64), (128, 128)))
    monkeypatch.setattr(buffers, "ROTATION", 1)
    monkeypatch.setattr(inplace, "TOKENS", (1, 64))
    machine = Machine.this()
    if len(machine.cpus) < 2:
        machine = Machine(machine.cpus * 2, machine.memory, machine.cache_bytes)
    heard = []
    loopback = Loopback(vram=64 << 20)
    hardware = profile(Machine(machine.cpus[:2], machine.memory, 4 << 20), loopback, "2026-01-01", heard.append)
    assert len(heard) == steps(loopback)
    assert [device.name for device in hardware.devices][:3] == ["cpu", "cpu-all", "loopback"]
    for device in hardware.devices[:3]:
        kinds = {(curve.bound, curve.op) for curve in device.efficiency}
        assert {("memory", "linear"), ("memory", "attention"), ("compute", "linear"), ("memory", "lookup")} <= kinds
        assert device.read.n >= 3
    link = hardware.link("dram", "vram")
    assert 0.2 * 2e9 < link.bandwidth.value < 1.2 * 2e9
    assert {reading.what for reading in hardware.readings} >= {"read", "linear", "attention", "gemm", "copy"}
    assert any(reading.conditions.get("link") == "busy" for reading in hardware.readings)
