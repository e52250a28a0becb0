"""The line that says which machine figures are of."""

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.machine_line import MachineFacts, facts_in, facts_of, record_line
from helmsman.schemas.hardware import Figure, Host, Reading

HERE = MachineFacts("AMD EPYC", 2, ("avx512vnni", "avx512"), {1: 38.5e9, 2: 60e9})


def test_a_machine_in_a_line():
    assert str(HERE) == (
        "AMD EPYC, 2 cores, avx512vnni kernels (of avx512vnni, avx512); "
        "reads 38.50 GB/s with 1, 60.00 GB/s with 2 threads"
    )
    assert str(MachineFacts("Xeon", 1)) == "Xeon, 1 core, instruction set unknown; read limits not measured"


def test_notes_of_a_trace_give_it_back():
    assert facts_in({"prompt_tokens": 3, **HERE.notes}) == HERE
    assert facts_in({"prompt_tokens": 3}) is None


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (MachineFacts("AMD EPYC", 2, ("avx512vnni",), {1: 1e9}), True),
        (MachineFacts("AMD EPYC", 4, ("avx512vnni",)), False),
        (MachineFacts("AMD EPYC", 2, ("avx2",)), False),
        (MachineFacts("Xeon", 2, ("avx512vnni",)), False),
    ],
)
def test_how_fast_it_reads_makes_no_other_machine(other: MachineFacts, same: bool):
    assert HERE.same_processor(other) is same


def test_a_record_says_where_it_was_measured():
    known = load_hardware("rtx4060-laptop", None)
    assert facts_of(known) is None and record_line(known).endswith("composed, not measured")
    source, host = next(iter(known.sources)), known.devices[0]

    def read(rate: float, **given: int | str) -> Reading:
        figure = Figure(value=rate, p10=rate, p90=rate, n=1, source=source)
        return Reading(what="read", device=host.name, conditions=given, unit="bytes/s", figure=figure)

    readings = (
        read(38.5e9, threads=1, pattern="scattered", bytes=1),
        read(99e9, threads=1, pattern="contiguous", bytes=1),
        read(9e9, threads=2, pattern="scattered", link="busy", bytes=1),
        read(60e9, threads=2, pattern="scattered", bytes=1),
    )
    facts = Host(cpu="AMD EPYC", cores=2, isa=("avx512vnni", "avx512"), ram=2**34)
    assert facts_of(known.model_copy(update={"host": facts, "readings": readings})) == HERE
