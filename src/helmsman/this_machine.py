"""The machine at hand: as it was last profiled, else as it is found by looking."""

from collections.abc import Callable
from pathlib import Path

from helmsman.hwdb.load_hardware import THIS, load_hardware
from helmsman.profiles_folder import profiles_folder
from helmsman.schemas.detected import DetectedMachine
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.hardware import Hardware


def this_machine(profiles: Path | None = None, tell: Callable[[str], None] = lambda _: None) -> Hardware:
    """Return the newest profile in the folder `profiles`, where helm-profile leaves them by default; where there is
    none, a record of the parts that are found, and `tell` hears what of it is assumed."""
    try:
        return load_hardware(THIS, profiles_folder() if profiles is None else profiles, tell)
    except HardwareUnavailableError:
        return found_machine(tell)


def found_machine(tell: Callable[[str], None] = lambda _: None) -> Hardware:
    """Return the record of the machine at hand by its parts. Raises HardwareUnavailableError with less than 1 GiB of
    memory."""
    from helmsman.detection.machine import find_machine
    from helmsman.detection.system import ObservedSystem
    from helmsman.hwdb.detected_hardware import hardware_of

    machine = find_machine(ObservedSystem.here())
    record = hardware_of(machine)
    tell(f"not profiled, planned by its parts: {parts_line(machine)}; helm-profile measures it")
    for problem in machine.problems:
        tell(f"{problem.what}: {problem.problem}; {problem.remedy}")
    for line in record.assumed:
        tell(f"assumed: {line}")
    return record.hardware


def parts_line(machine: DetectedMachine) -> str:
    """Return a machine's processor, memory and GPUs on a line."""
    from helmsman.schemas.units import format_bytes

    memory = machine.memory
    limit = f" (limit; the machine has {format_bytes(memory.total)})" if memory.limited else ""
    gpus = [gpu.name if gpu.capacity is None else f"{gpu.name} {format_bytes(gpu.capacity)}" for gpu in machine.gpus]
    return ", ".join([machine.processor.name, f"{format_bytes(memory.allowed)}{limit}", *(gpus or ["no GPU"])])
