"""The machine that was measured, as one line that is equal for equal machines."""

from helmsman.hwdb.machine_line import MachineFacts

UNKNOWN = "a machine that is not said"
"""Of measurements that do not tell."""


def machine_here() -> str:
    """Return the machine at hand: its processor, the cores that may be used, and the instruction set in use."""
    from helmsman.executor.measuring.host_facts import host_facts
    from helmsman.executor.system.machine import Machine

    host = host_facts(Machine.this())
    return machine_line(MachineFacts(host.cpu, host.cores, host.isa))


def machine_line(facts: MachineFacts | None) -> str:
    """Return what measurements of one kind of machine have in common: not how fast it reads, which moves."""
    if facts is None:
        return UNKNOWN
    cores = f"{facts.cores} core{'s' if facts.cores > 1 else ''}"
    return f"{facts.cpu}, {cores}, {facts.isa[0] if facts.isa else 'unknown'} kernels"
