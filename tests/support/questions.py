"""Questions of strategies whose host and accelerator both work, and their steps replayed."""

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement, batches_together
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.objective import Objective
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay

LAPTOP, SERVER = "rtx4060-laptop", "a10-xeon6342"


def limited(name: str, vram: int | None = None) -> Hardware:
    """A machine of the catalogue with so many bytes on its accelerator."""
    hardware = load_hardware(name, None)
    if vram is None:
        return hardware
    away = roles(hardware).accelerator.memory
    memories = tuple(
        memory.model_copy(update={"available": vram}) if memory.name == away else memory for memory in hardware.memories
    )
    return hardware.model_copy(update={"memories": memories})


def asked(
    model: str = "Qwen3-8B",
    machine: str = LAPTOP,
    layers: int | None = None,
    vram: int | None = None,
    objective: Objective = "latency",
    **work: int,
) -> Question:
    """The fastest decode step of 128 + 128 tokens unless said otherwise."""
    found = load_model(model)
    if layers is not None:
        found = found.with_layers(layers)
    workload = Workload(**{"prompt_tokens": 128, "output_tokens": 128, "context": 256, **work})
    return Question(Frame(found, roles(limited(machine, vram)), workload), CostOptions(), objective)


def simulated(question: Question, placed: Placement) -> float:
    """Seconds of the mean step, replayed with contention."""
    costs = question.costs(placed)
    graph = lower(placed, mean_step(placed.workload, batches_together(placed)))
    return replay(graph, lambda task: costs.price(task).mid, costs.hardware).makespan
