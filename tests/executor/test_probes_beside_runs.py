"""Probes beside a run: of each what is usual in its turns, reads before products."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from plans import make_hardware

import helmsman
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.executor.devices.probe import panel_bytes
from helmsman.executor.measuring import prober as prober_module
from helmsman.executor.measuring.prober import Prober, computed_format, middle
from helmsman.executor.system.machine import Machine
from helmsman.schemas.plan import Select
from helmsman.schemas.rounding import DEFAULT_ROUNDING
from helmsman.schemas.trace import Probe

RATES = (9.0, 1.0, 5.0)
"""One turn was held up."""


class VirtualDevice:
    """A device whose reads and products take a number of each turn, and that notes their order."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self._order = name, order
        self._reads, self._products = iter(RATES), iter(RATES)

    def read_rate(self, pieces: Sequence[object]) -> float:
        self._order.append("read")
        return next(self._reads)

    def product_rate(self, fmt: str, matrices: Sequence[object], rounding: str) -> float:
        self._order.append("product")
        return next(self._products)


class VirtualLane:
    """A lane of one rate."""

    name = "h2d"

    def __init__(self, order: list[str]) -> None:
        self._order = order

    def sample(self) -> SimpleNamespace:
        self._order.append("link")
        return SimpleNamespace(rate=2.0, latency=1e-6)


def test_a_turn_that_was_held_up_is_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    devices = {name: VirtualDevice(name, order) for name in ("cpu", "loopback")}
    opened: Any = SimpleNamespace(by_name=devices, links=[VirtualLane(order)])
    joint = iter(RATES)

    def joint_rate(pools: object, pieces: object) -> float:
        order.append("joint")
        return next(joint)

    class VirtualProducts:
        """What both keep: half of their arithmetic at one of three moments."""

        def __init__(self) -> None:
            self._kept = iter((0.4, 1.0, 1.0))

        def kept(self, pools: object, repeats: int) -> float:
            order.append("both multiply")
            return next(self._kept)

    monkeypatch.setattr(prober_module, "probe_pieces", lambda cache: [])
    monkeypatch.setattr(prober_module, "computed_format", lambda plan: "bf16")
    monkeypatch.setattr(prober_module, "product_matrices", lambda fmt: [])
    monkeypatch.setattr(prober_module, "sharing", lambda plan, devices: {"dram": []})
    monkeypatch.setattr(prober_module, "JointProductProbe", VirtualProducts)
    monkeypatch.setattr(prober_module, "joint_read_rate", joint_rate)
    machine: Any = SimpleNamespace(cache_bytes=1)
    of_record: Any = SimpleNamespace(device=lambda name: SimpleNamespace(rounds=DEFAULT_ROUNDING))
    plan: Any = SimpleNamespace(hardware=of_record)
    prober = prober_module.Prober(plan, machine)
    found = prober.probe(opened, run=4, turns=3)
    assert {(probe.what, probe.name): probe.value for probe in found} == {
        ("read", "cpu"): 5.0,
        ("read", "loopback"): 5.0,
        ("joint", "dram"): 5.0,
        ("link", "h2d"): 2.0,
        ("compute", "cpu"): 5.0,
        ("compute", "loopback"): 5.0,
        ("joint_compute", "dram"): pytest.approx(0.8),
    }
    assert {probe.run for probe in found} == {4}
    assert prober.latencies == {"latency_s.h2d.4": 1e-6}
    turn = ["read", "read", "joint", "link", "product", "product", "both multiply"]
    assert order == 3 * turn


def test_devices_with_fewer_matrices_than_share_their_memory_read_noise_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of two devices has one matrix, which the first of them would read alone."""
    read: list[object] = []

    def joint_rate(pools: Sequence[object], own: Sequence[object]) -> float:
        read.extend(own)
        return 1.0

    monkeypatch.setattr(prober_module, "product_matrices", lambda fmt: [])
    monkeypatch.setattr(prober_module, "computed_format", lambda plan: "bf16")
    monkeypatch.setattr(prober_module, "JointProductProbe", lambda: SimpleNamespace(kept=lambda pools, repeats: 1.0))
    monkeypatch.setattr(prober_module, "probe_pieces", lambda cache: ["n0", "n1", "n2"])
    monkeypatch.setattr(prober_module, "joint_read_rate", joint_rate)
    sharers = [SimpleNamespace(name=name, pool=name) for name in ("cpu", "loopback")]
    monkeypatch.setattr(prober_module, "sharing", lambda plan, devices: {"dram": sharers})
    machine: Any = SimpleNamespace(cache_bytes=1)
    plan: Any = None
    prober = prober_module.Prober(plan, machine)
    monkeypatch.setattr(prober, "_read", lambda device, run, pieces: None)
    monkeypatch.setattr(prober, "product", lambda device, run: None)
    devices: Any = SimpleNamespace(by_name={each.name: each for each in sharers}, links=())
    pieces: Any = {"cpu": ["a", "b", "c"], "loopback": ["d"]}
    list(prober._turn(devices, 0, pieces))
    assert read == ["n0", "n1"]
    read.clear()
    list(prober._turn(devices, 0, {**pieces, "loopback": ["d", "e"]}))
    assert read == ["a", "e"]


def test_reads_read_the_matrices_of_a_device_where_all_are_beyond_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's alone would fit; an accelerator without matrices reads noise."""
    monkeypatch.setattr(prober_module, "product_matrices", lambda fmt: [])
    monkeypatch.setattr(prober_module, "computed_format", lambda plan: "bf16")
    record, values = make_hardware().memories[0], np.ones((16, 2560), np.float32)
    memories = {name: record.model_copy(update={"name": name}) for name in ("cpu", "other", "bare")}
    devices = {name: CpuDevice(name, BoundedMemory(each, 1 << 20), (0,)) for name, each in memories.items()}
    for name, count in (("cpu", 2), ("other", 3)):
        for number in range(count):
            devices[name].memory.keep(values, "f32", "f32", 2560, f"{number}")
    opened: Any = SimpleNamespace(by_name=devices)
    plan: Any = None
    for together, own in ((5 * values.nbytes, True), (5 * values.nbytes + 1, False)):
        monkeypatch.setattr(prober_module, "beyond_caches", lambda cache, together=together: together)
        prober = prober_module.Prober(plan, Machine((0,), 1 << 30, 1))
        pieces = prober.pieces(opened)
        assert pieces["bare"] is prober.noise
        for name in ("cpu", "other"):
            matrices = devices[name].memory.matrices
            assert [piece.size for piece in pieces[name]] == [each.size for each in (matrices if own else prober.noise)]


def test_processors_read_weights_by_products_and_others_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A native device multiplies its weights with one token, any other reads plainly; a matrix smaller than a panel of
    rows is left out."""

    def product(prober: Prober, device: Any, run: int) -> Probe:
        return Probe(what="compute", name=device.name, run=run, value=1.0)

    def weights_rate(pool: object, fmt: str, pieces: Sequence[Any]) -> float:
        multiplied.append((fmt, [piece.size for piece in pieces]))
        return 4e9

    multiplied: list[tuple[str, list[int]]] = []
    monkeypatch.setattr(prober_module, "product_matrices", lambda fmt: [])
    monkeypatch.setattr(prober_module, "computed_format", lambda plan: "q8_0")
    monkeypatch.setattr(prober_module, "sharing", lambda plan, devices: {})
    monkeypatch.setattr(prober_module, "beyond_caches", lambda cache: 208 << 10)
    monkeypatch.setattr(prober_module, "weights_rate", weights_rate)
    monkeypatch.setattr(Prober, "product", product)
    memory = BoundedMemory(make_hardware().memories[0], 1 << 20)
    for rows, columns in ((32, 1024), (16, 1024), (16, 256)):
        memory.keep(np.ones((rows, columns), np.float32), "f32", "f32", columns, f"{rows} x {columns}")
    devices = {"cpu": CpuDevice("cpu", memory, (0,)), "other": VirtualDevice("other", [])}
    opened: Any = SimpleNamespace(by_name=devices, links=[])
    plan: Any = None
    probes = Prober(plan, Machine((0,), 1, 1)).probe(opened, run=2, turns=1)
    assert 16 * 256 * 4 < panel_bytes("q8_0") < 16 * 1024 * 4
    assert multiplied == [("q8_0", [131072, 65536])]
    assert [probe for probe in probes if probe.what == "read"] == [
        Probe(what="read", name="cpu", run=2, value=4e9, format="q8_0", tokens=1, matrix_bytes=98304),
        Probe(what="read", name="other", run=2, value=RATES[0]),
    ]


def test_medians_are_of_like_probes() -> None:
    turns = [
        [Probe(what="read", name="cpu", run=0, value=a), Probe(what="link", name="h2d", run=0, value=b)]
        for a, b in ((1.0, 40.0), (2.0, 10.0), (9.0, 20.0))
    ]
    assert [(probe.name, probe.value) for probe in middle(turns)] == [("cpu", 2.0), ("h2d", 20.0)]


def test_probes_multiply_in_the_format_that_a_step_reads_most_of() -> None:
    model = helmsman.load_model("OLMoE-1B-7B-0924").with_layers(1)
    plan = helmsman.plan({"model": model, "hardware": "epyc9554-cpu", "strategy": "cpu-only", "format": "q4_0"}).plan
    head = plan.residence[-1].model_copy(
        update={"select": Select(names="head.weight"), "format": "q8_0", "used": "q8_0"}
    )
    assert computed_format(plan) == "q4_0"
    assert computed_format(plan.model_copy(update={"residence": (head, *plan.residence)})) == "q8_0"
