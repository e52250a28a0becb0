"""Questions about placing experts, on a GPU with as many bytes as a test says."""

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.blocks.block import Residual
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.read import digest
from helmsman.schemas.routing import LayerRouting, Routing
from helmsman.schemas.workload import Workload

MIB = 2**20


def machine_with(vram: int) -> Hardware:
    """Return a machine whose GPU has so many bytes."""
    machine = load_hardware("a4000-7950x", None)
    memories = tuple(
        memory.model_copy(update={"available": vram}) if memory.name == "vram" else memory
        for memory in machine.memories
    )
    return machine.model_copy(update={"memories": memories, "tables": ()})


def question(
    model: str | Model, layers: int, vram: int, prompt: int = 256, output: int = 64, routing: Routing | None = None
) -> Question:
    """Return a question about the first layers of a model on a GPU of so many bytes."""
    loaded = (load_model(model) if isinstance(model, str) else model).with_layers(layers)
    work = Workload(prompt_tokens=prompt, output_tokens=output, context=prompt + output, routing=routing)
    frame = Frame(loaded, roles(machine_with(vram)), work, "q4_0", "f16", fused=True)
    return Question(frame, CostOptions())


def skewed(experts: int, chosen: int, power: float) -> tuple[float, ...]:
    """Return probabilities of experts that fall by a power of their number, and add up to `chosen`, none above 1."""
    weights = [(number + 1.0) ** -power for number in range(experts)]
    low, high = 0.0, experts / min(weights)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(1.0, middle * w) for w in weights) < chosen else (low, middle)
    chances = [min(1.0, high * weight) for weight in weights]
    return tuple(chance * chosen / sum(chances) if chance < 1.0 else 1.0 for chance in chances)


def routing_of(model: Model, *layers: LayerRouting) -> Routing:
    """Return the routing of a model's layers."""
    return Routing(model=model.name, model_sha256=digest(model), layers=layers)


def with_experts(model: Model, experts: int, chosen: int) -> Model:
    """Return a model whose layers have so many experts instead."""

    def changed(residual: Residual) -> Residual:
        bodies = tuple(
            body.model_copy(update={"op": body.op.model_copy(update={"experts": experts, "chosen": chosen})})
            if isinstance(body.op, Experts)
            else body
            for body in residual.bodies
        )
        return residual.model_copy(update={"bodies": bodies})

    layouts = tuple(
        block.model_copy(update={"residuals": tuple(map(changed, block.residuals))}) for block in model.layouts
    )
    return model.model_copy(update={"layouts": layouts})
