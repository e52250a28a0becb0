"""What several devices reach in a memory scales by what all of them read beside a run, not by what each reads alone."""

import pytest
from plans import figure, make_hardware

from helmsman.analysis.scaling import Scaling
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.trace import Probe

ENDS = ("value", "p10", "p90")


def joint(rate: float | None) -> Hardware:
    hardware = make_hardware()
    together = None if rate is None else figure(rate)
    memories = tuple(m.model_copy(update={"joint": together}) if m.name == "dram" else m for m in hardware.memories)
    return hardware.model_copy(update={"memories": memories})


def test_a_joint_probe_scales_what_several_users_reach() -> None:
    hardware = joint(2e10)
    probes = [
        Probe(what="joint", name="dram", run=0, value=1e10),
        Probe(what="joint", name="dram", run=0, value=1.2e10),
    ]
    scaling = Scaling(hardware, probes)
    dram = scaling.machine(0).memory("dram")
    assert dram.joint is not None
    assert dram.joint.value == pytest.approx(1.1e10)
    assert dram.bandwidth == hardware.memory("dram").bandwidth
    assert scaling.factors() == {"joint dram": pytest.approx(0.55)}


def test_arithmetic_that_devices_keep_scales_by_its_probe() -> None:
    hardware = joint(2e10)
    dram = hardware.memory("dram")
    kept = dram.model_copy(update={"joint_compute": dram.bandwidth.model_copy(update=dict.fromkeys(ENDS, 0.8))})
    known = hardware.model_copy(update={"memories": (kept, *hardware.memories[1:])})
    found = Scaling(known, [Probe(what="joint_compute", name="dram", run=0, value=0.6)]).machine(0).memory("dram")
    assert found.joint_compute is not None and found.joint_compute.value == pytest.approx(0.6)
    assert found.joint == dram.joint


def test_runs_without_a_joint_probe_keep_the_record() -> None:
    hardware = joint(2e10)
    assert Scaling(hardware, []).machine(0) is hardware
    unknown = joint(None)
    assert Scaling(unknown, [Probe(what="joint", name="dram", run=0, value=1e10)]).machine(0) is unknown
