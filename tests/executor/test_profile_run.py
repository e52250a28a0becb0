"""The whole profiler, with everything small: every part of a record, with a loopback, without one, and of a GPU."""

import time

import pytest
from test_profile import found, synthetic_gpu, synthetic_record

from helmsman.executor.devices import probe
from helmsman.executor.profile import (
    bench,
    between_passes,
    copies,
    expert_products,
    handovers,
    processor,
    prompt_attention,
    prompts,
    quality,
    random_reads,
    requests,
    run,
    shares,
    synthetic_stage,
)
from helmsman.executor.profile import joint as side_by_side
from helmsman.executor.profile.between_passes import measure_between_passes
from helmsman.executor.profile.quality import Watch
from helmsman.executor.profile.report import summary
from helmsman.executor.profile.run import profile, steps
from helmsman.executor.profile.settings import Loopback
from helmsman.executor.system import machine as this_machine
from helmsman.executor.system.interference import Moment
from helmsman.executor.system.machine import Machine
from helmsman.schemas.described import reshaped

NARROW = reshaped(synthetic_stage.MODEL, hidden=256, heads=2, kv_heads=1, ffn=512, vocab=1024)
"""The synthetic stage's model, with as many blocks."""
FEW_BLOCKS = between_passes._SMALL.model_copy(update={"layers": 4, "vocab": 8192})
"""The model whose passes are run, with few blocks and tokens to choose from: what is between passes is there alike."""
UNWATCHED = Watch(now=lambda: Moment(time.monotonic()))
"""The watch of a system that tells nothing of other processes: the profile neither waits for quiet nor measures again,
whatever the time; no assertion reads it."""


def few_blocks(monkeypatch):
    """Passes of a small model."""
    monkeypatch.setattr(between_passes, "_SMALL", FEW_BLOCKS)
    monkeypatch.setattr(between_passes, "MAX_HIDDEN", FEW_BLOCKS.hidden)


def small(monkeypatch):
    """Everything small, so that a profile takes a second or two."""
    monkeypatch.setattr(processor, "PAIRS", 3)
    monkeypatch.setattr(copies, "PAIRS", 3)
    monkeypatch.setattr(run, "BUSY_PAIRS", 2)
    monkeypatch.setattr(processor, "FOOTPRINTS", (1 << 20,))
    monkeypatch.setattr(shares, "SLICE_S", 5e-4)
    monkeypatch.setattr(expert_products, "SLICE_S", 5e-4)
    monkeypatch.setattr(expert_products, "SHAPE", (64, 256))
    monkeypatch.setattr(expert_products, "TOKENS", {2: 8, 8: 2})
    monkeypatch.setattr(random_reads, "FILE_BYTES", 1 << 20)
    monkeypatch.setattr(random_reads, "READS", 4)
    monkeypatch.setattr(bench, "JOINT_PRODUCTS", 1)
    monkeypatch.setattr(probe, "JOINT_PRODUCT", (64, 512))
    monkeypatch.setattr(side_by_side, "WALKED", 4 << 20)
    monkeypatch.setattr(side_by_side, "SHAPES", ((256, 1024), (1024, 1024)))
    monkeypatch.setattr(processor, "SHAPES", ((256, 512), (1024, 512)))
    monkeypatch.setattr(prompts, "GEMM_SHAPE", (512, 512))
    monkeypatch.setattr(prompts, "FEW_ROWS", (32, 512))
    monkeypatch.setattr(processor, "FEW_SHAPES", ((256, 512), (1024, 512)))
    monkeypatch.setattr(processor, "GEMM_TOKENS", (4, 64))
    monkeypatch.setattr(processor, "CONTEXTS", ((32, 64), (128, 128)))
    monkeypatch.setattr(this_machine, "LARGEST", 16 << 20)
    monkeypatch.setattr(synthetic_stage, "TOKENS", (1, 64))
    monkeypatch.setattr(prompt_attention, "PROMPTS", (32, 256))
    monkeypatch.setattr(prompt_attention, "LONG_PROMPT", 1536)
    monkeypatch.setattr(prompt_attention, "MODEL", NARROW)
    monkeypatch.setattr(synthetic_stage, "MODEL", NARROW)
    monkeypatch.setattr(requests, "ROUNDS", 3)
    monkeypatch.setattr(handovers, "ROUNDS", 5)
    monkeypatch.setattr(quality, "ATTEMPTS", 1)
    for module in (quality, prompts):
        monkeypatch.setattr(module, "VISITS", 2)
    few_blocks(monkeypatch)


def test_a_real_profile_has_every_part(monkeypatch, tmp_path):
    """The whole profiler at a small size: shares near or below 1, distributions ordered, lanes near their setting."""
    small(monkeypatch)
    machine = Machine.this()
    if len(machine.cpus) < 2:
        machine = Machine(machine.cpus * 2, machine.memory, machine.cache_bytes)
    heard = []
    loopback = Loopback(vram=64 << 20)
    hardware = profile(
        Machine(machine.cpus[:2], machine.memory, 4 << 20), loopback, "2026-01-01", heard.append, UNWATCHED, [tmp_path]
    )
    assert len(heard) == steps(loopback, 1)
    assert [device.name for device in hardware.devices][:3] == ["cpu", "cpu-all", "loopback"]
    for device in hardware.devices[:3]:
        kinds = {(curve.bound, curve.op) for curve in device.efficiency}
        assert {("memory", "linear"), ("memory", "attention"), ("compute", "linear"), ("memory", "lookup")} <= kinds
        attending = [c for c in device.efficiency if (c.bound, c.op) == ("compute", "attention")]
        assert [curve.rounding for curve in attending] == ["f32", "bf16", "int16"]
        for curve in attending:
            assert curve.at == (1, 32, 256, 1536) and [share.n for share in curve.share[1:]] == [6, 6, 2]
        products = [c for c in device.efficiency if c.op == "linear"]
        assert {"q8_0", "q4_0", "mxfp4"} <= {c.format for c in products if c.bound == "memory"}
        of_codes = [c.rounding for c in products if (c.bound, c.format) == ("compute", "mxfp4")]
        assert of_codes == ["int16", "bf16", "int8", "f32"]
        assert device.read.n >= 3 and device.request.value >= 0
    link = hardware.link("dram", "vram")
    assert link.bandwidth.value > 0
    assert {reading.what for reading in hardware.readings} >= {"read", "linear", "attention", "gemm", "copy"}
    busy = {reading.what for reading in hardware.readings if reading.conditions.get("link") == "busy"}
    assert busy == {"read", "linear", "gemm", "inputs", "attention", "joint", "joint read"}
    products = hardware.memory("dram").joint_products
    assert [product.format for product in products] == ["bf16", "q8_0", "q4_0"]
    assert all(product.share.n >= quality.VISITS for product in products)
    experts = [(c.bound, c.format) for c in hardware.devices[0].efficiency if c.op == "experts"]
    several = [("compute", f) for f in processor.EXPERTS for _ in (0, *processor.OTHER_ROUNDINGS[f])]
    assert sorted(experts) == sorted([*(("memory", f) for f in processor.EXPERTS), *several])
    lines = summary(hardware)
    assert "at once   cpu " in lines and "experts   mxfp4" in lines and len(hardware.disks) in (0, 1)
    assert {
        "task",
        "join",
        "look up",
        "copy after work",
        "copy beside work",
        "handover",
        "taken",
        "between passes",
    } <= {reading.what for reading in hardware.readings}
    joint = hardware.memory("dram").joint
    kept = hardware.memory("dram").joint_compute
    assert kept is not None and kept.n > 50
    beside = len(side_by_side.SHAPES) + len(side_by_side.QUANTISED)
    assert joint is not None and joint.n > 50 + quality.VISITS * (1 + beside)
    assert hardware.between_passes is not None
    assert all((device.look_up is None) == (device.join is None) for device in hardware.devices)
    assert link.latency.value == loopback.latency and link.overhead is not None and link.handover is not None
    assert {r.conditions["threads"] for r in hardware.readings if r.what == "read" and r.device == "cpu-all"} == {1, 2}
    assert 0.0 < found(hardware, "copy", "h2d", cpu="busy").value < 1.2 * 2e9
    assert set(link.slows) == {"cpu"} and link.slows["cpu"].n > 10
    assert all(reading.figure.n > 0 for reading in hardware.readings)


@pytest.mark.nightly
def test_a_profile_without_a_loopback_has_one_processor(monkeypatch):
    small(monkeypatch)
    heard = []
    machine = Machine.this()
    hardware = profile(Machine(machine.cpus, machine.memory, 4 << 20), None, "2026-01-01", heard.append, UNWATCHED)
    assert len(heard) == steps(None)
    assert "cpu" in [device.name for device in hardware.devices]
    assert not any(device.kind == "loopback" for device in hardware.devices)


def test_a_gpu_is_measured_by_the_plans_that_run_there(monkeypatch):
    """Processors stand for the GPU: what is measured is there, and passes that end on it begin after some time."""
    few_blocks(monkeypatch)
    cores = {"cores": 1}
    hardware = synthetic_record(cuda=synthetic_gpu())
    host, gpu = (hardware.device(name) for name in ("cpu", "cuda"))
    alone = hardware.model_copy(update={"devices": (host.model_copy(update=cores), gpu)})
    machine = Machine(cpus=(0,), memory=2**34, cache_bytes=2**20, accelerators={"cuda": ("cpu",)})
    measured = measure_between_passes(alone, machine)
    assert measured.gpu is not None and {device for device, _ in measured.seconds} == {"cpu", "cuda"}
    assert set(measured.gpu.overheads) == {"lookup", "norm", "append", "linear", "attention"}
    assert all(min(spent) >= 0 for spent in measured.gpu.overheads.values())
    assert set(measured.gpu.copy) == set(measured.gpu.handover) == {"cuda-h2d", "cuda-d2h"}
    assert measured.gpu.prompt
