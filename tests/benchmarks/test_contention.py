"""GPUDirect beside 4-bit groups: the record's factor is one for which eq 10's plan loses, as the paper measured."""

import pytest
from benchmarks.contention import MACHINE, break_even, layer_seconds, machine, question, recorded

from helmsman.hwdb.load_hardware import load_hardware


def test_the_recorded_factor_lies_above_break_even() -> None:
    """E-PARK-17: 0.29 is the least factor; the record's lower end is that."""
    hardware = load_hardware(MACHINE, None)
    least = break_even()
    assert least == pytest.approx(0.29, abs=0.01)
    low = sum(figure.p10 for link in hardware.links for figure in (link.slows or {}).values())
    assert low == pytest.approx(least, rel=0.05)
    assert recorded(hardware) > least


def test_storage_still_helps_without_compression() -> None:
    hardware = load_hardware(MACHINE, None)
    seconds = []
    for stored in (False, True):
        asked = question(hardware, "none", stored)
        seconds.append(layer_seconds(asked, asked.layout(asked.every_split.best), hardware))
    assert seconds[1] < 0.98 * seconds[0]


def test_a_machine_is_scaled_as_a_whole() -> None:
    assert recorded(machine(0.1)) == pytest.approx(0.1)
