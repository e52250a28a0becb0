"""What figures of real time begin with: the machine they are of."""

from helmsman.executor.measuring.host_facts import facts_here
from helmsman.executor.system.machine import Machine


def print_machine() -> None:
    """Print the processor at hand, how fast it reads right now, and which GPUs there are."""
    machine = Machine.this()
    gpus = [name for names in machine.accelerators.values() for name in names]
    print(f"machine: {facts_here(machine)}; {', '.join(gpus) if gpus else 'no GPU was at hand'}", flush=True)
