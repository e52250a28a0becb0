"""One line that says which machine figures are of: processor, cores, instruction sets, how fast it reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from helmsman.schemas.hardware import Hardware
from helmsman.schemas.units import format_rate

CPU = "machine.cpu"
CORES = "machine.cores"
ISA = "machine.isa"
READ = "machine.read_bytes_s"
"""Notes of a Trace; the last with the threads behind a dot."""

Notes = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """A processor with `cores` that may be used. `isa`: instruction sets that kernels have, the one in use first;
    `reads`: bytes/s of plain reads from memory, by threads; empty where nobody has measured them."""

    cpu: str
    cores: int
    isa: tuple[str, ...] = ()
    reads: Mapping[int, float] = field(default_factory=dict)

    def same_processor(self, other: "MachineFacts") -> bool:
        """Whether both are of one kind of machine; how fast it reads moves."""
        return (self.cpu, self.cores, self.isa[:1]) == (other.cpu, other.cores, other.isa[:1])

    @property
    def notes(self) -> dict[str, str | int | float]:
        """For a Trace."""
        reads = {f"{READ}.{threads}": rate for threads, rate in self.reads.items()}
        return {CPU: self.cpu, CORES: self.cores, ISA: " ".join(self.isa), **reads}

    def __str__(self) -> str:
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        isa = f"{self.isa[0]} kernels" if self.isa else "instruction set unknown"
        others = f" (of {', '.join(self.isa)})" if len(self.isa) > 1 else ""
        reads = ", ".join(f"{format_rate(rate)} with {count}" for count, rate in sorted(self.reads.items()))
        limits = f"reads {reads} thread{'s' if max(self.reads) > 1 else ''}" if reads else "read limits not measured"
        return f"{self.cpu}, {cores}, {isa}{others}; {limits}"


def facts_of(hardware: Hardware) -> MachineFacts | None:
    """Return the machine on which a record was measured; None for one that was composed from what others say."""
    if hardware.host is None:
        return None
    processors = {device.name for device in hardware.devices if device.kind == "cpu"}
    reads: dict[int, float] = {}
    for reading in hardware.readings:
        given = reading.conditions
        plain = reading.what == "read" and given.get("pattern") == "scattered" and given.get("link") is None
        if plain and reading.device in processors and isinstance(threads := given.get("threads"), int):
            reads.setdefault(threads, reading.figure.value)
    return MachineFacts(hardware.host.cpu, hardware.host.cores, hardware.host.isa, reads)


def facts_in(notes: Notes) -> MachineFacts | None:
    """Return the machine that wrote a Trace; None where it does not say."""
    if CPU not in notes:
        return None
    reads = {int(name.rpartition(".")[2]): float(rate) for name, rate in notes.items() if name.startswith(READ)}
    return MachineFacts(str(notes[CPU]), int(notes[CORES]), tuple(str(notes[ISA]).split()), reads)


def record_line(hardware: Hardware) -> str:
    """Return the machine of a record, or what its host is said to be."""
    facts = facts_of(hardware)
    if facts is not None:
        return str(facts)
    host = hardware.devices[0]
    name = host.product or host.device_class or host.name
    return f"{hardware.name}: {name}, said to read {format_rate(host.read.value)}; composed, not measured"
