"""A contended pair, experts and disks in a profile: from recorded samples to figures, prices and text."""

import json
from dataclasses import replace
from pathlib import Path
from threading import Thread, current_thread, main_thread

import pytest
from test_profile import PEAK, READ, synthetic, synthetic_gpu, synthetic_profile

from helmsman.executor.profile import random_reads
from helmsman.executor.profile.contended import ROUNDS, measure_contended
from helmsman.executor.profile.disturbance import marked
from helmsman.executor.profile.random_reads import measure_random_reads
from helmsman.executor.profile.record import record
from helmsman.executor.profile.report import summary
from helmsman.executor.profile.samples import ContendedSamples, DiskSamples
from helmsman.planner.cost.device_rates import efficiency_curve
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.read import parse_document
from helmsman.timing.pools import Pools


def test_each_of_a_pair_is_measured_alone_and_beside_the_other() -> None:
    """Of a memory that gives both 12 bytes/s: reads alone have 10, copies alone 5, both together 8 and 4."""
    other: list[Thread] = []

    def read() -> float:
        return 8.0 if other and other[-1].is_alive() else 10.0

    def copy() -> float:
        if current_thread() is main_thread():
            return 5.0
        other.append(current_thread())
        return 4.0

    samples = measure_contended(read, copy)
    assert samples.read == [10.0] * ROUNDS and samples.link == [5.0] * ROUNDS
    assert samples.read_beside == [8.0] * ROUNDS and samples.link_beside == [4.0] * ROUNDS


def test_a_contended_pair_slows_reads_and_fills_the_memory() -> None:
    pair = ContendedSamples([63.8e9] * 5, [24.9e9] * 5, [54.0e9] * 5, [23.9e9] * 5)
    gpu = replace(synthetic_gpu(), contended={"h2d": pair, "d2h": pair})
    profile = synthetic_profile()
    plain = replace(profile, processors=profile.processors[:1], loopback=None, links={}, busy=None, cuda=gpu)
    hardware = marked(record(plain), plain)
    assert parse_document(Hardware, hardware.to_json().encode(), "record") == hardware
    link = hardware.link("dram", "cuda-vram")
    assert link is not None and link.slows is not None
    assert link.slows["cpu"].value == pytest.approx(63.8 / 54.0 - 1)
    joint = hardware.memory("dram").joint
    assert joint is not None and joint.value == pytest.approx(77.9e9)
    assert Pools(hardware).capacity["dram"] == pytest.approx(77.9e9), "both directions share what they had together"
    assert "at once   cpu 54.00 GB/s (alone 63.80 GB/s), h2d 23.90 GB/s (alone 24.90 GB/s)" in summary(hardware)


def test_experts_have_shares_of_their_own() -> None:
    samples, stage = synthetic()
    samples.experts["q4_0", 10**6] = [0.6] * 5
    samples.expert_products = {("q4_0", "int16", 2): [PEAK / 20] * 5, ("q4_0", "int16", 8): [PEAK / 10] * 5}
    profile = synthetic_profile()
    own = tuple(replace(processor, samples=samples, stage=stage) for processor in profile.processors)
    hardware = record(replace(profile, processors=own))
    device = hardware.devices[0]
    for fmt in ("q4_0", "q6_k"):
        reading, product = (efficiency_curve(device, bound, "experts", fmt) for bound in ("memory", "compute"))
        assert reading is not None and product is not None and (reading.op, product.op) == ("experts", "experts")
        assert [share.value for share in product.share] == pytest.approx([0.05, 0.1])
        assert reading.share[0].value > 0.6, "less the overhead that every operation has"
    plain = efficiency_curve(device, "compute", "experts", "f16")
    assert plain is not None and plain.op == "linear", "nobody measured experts in f16"
    assert "experts   q4_0: 0.60 of plain reads with a token; 5.0, 10.0 GFLOP/s with 2, 8 tokens" in summary(hardware)
    assert device.read.value == READ


def test_disks_are_in_the_record() -> None:
    disk = DiskSamples("/disk", {1: [40e6] * 3, 32: [900e6] * 3}, [1e-4] * 3)
    hardware = record(replace(synthetic_profile(), disks=(disk,)))
    assert parse_document(Hardware, hardware.to_json().encode(), "record") == hardware
    (reads,) = hardware.disks
    assert (reads.bytes, reads.readers, reads.latency.value) == (4096, (1, 32), 1e-4)
    assert "/disk: reads of 4.10 kB anywhere take 100 us; 40.00 MB/s by 1, 900.00 MB/s by 32" in summary(hardware)
    content = hardware.to_dict()
    content["disks"][0]["readers"] = [32, 1]
    with pytest.raises(BadInputError, match="strictly increasing"):
        parse_document(Hardware, json.dumps(content).encode(), "record")


def test_random_reads_of_a_small_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_reads, "FILE_BYTES", 1 << 20)
    monkeypatch.setattr(random_reads, "READS", 2)
    samples = measure_random_reads(tmp_path)
    assert not list(tmp_path.iterdir()), "nothing is left there"
    if samples is not None:  # a file system without direct reads has none
        assert min(map(min, samples.rates.values())) > 0 and len(samples.rates) == len(random_reads.READERS)
    assert measure_random_reads(Path("/proc")) is None
    monkeypatch.setattr(random_reads, "FILE_BYTES", 1 << 60)
    assert measure_random_reads(tmp_path) is None, "no room"
