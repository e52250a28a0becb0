"""The machine at hand, as it is found by looking."""

from helmsman.detection.control_groups import processor_quota
from helmsman.detection.gpus import find_gpus
from helmsman.detection.memory import find_memory
from helmsman.detection.processor import find_processor
from helmsman.detection.system import ObservedSystem
from helmsman.schemas.detected import DetectedMachine


def find_machine(system: ObservedSystem) -> DetectedMachine:
    """Return a system's processor, memory, limits and GPUs. Nothing is measured and nothing is started but programs
    that list devices."""
    gpus, problems = find_gpus(system)
    return DetectedMachine(
        system=system.name or "unknown",
        processor=find_processor(system),
        memory=find_memory(system),
        quota=processor_quota(system.at("/proc"), system.at("/sys/fs/cgroup")),
        gpus=tuple(gpus),
        problems=tuple(problems),
    )
