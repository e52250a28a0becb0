"""The work of a pass as plans are lowered, which is what constants are multiplied with."""

from dataclasses import dataclass
from functools import cache

from benchmarks.engine_passes.profiles import PassShape
from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower_runs
from helmsman.lowering.placement import Placement
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, Residence, Select
from helmsman.schemas.workload import Workload


@dataclass(frozen=True, slots=True)
class PassTasks:
    """The tasks of a pass, each with how often the pass has such a one, by part: products, head,
    experts, attention, other."""

    parts: dict[str, tuple[tuple[Task, int], ...]]

    def count(self, part: str) -> int:
        """Return how many tasks a part has."""
        return sum(times for _, times in self.parts[part])

    def bytes(self, part: str) -> float:
        """Return bytes of weights or caches of a part."""
        return float(sum(task.bytes * times for task, times in self.parts[part]))

    def flops(self, part: str) -> float:
        """Return the FLOPs of a part."""
        return float(sum(task.flops * times for task, times in self.parts[part]))

    def moved(self, part: str) -> float:
        """Return bytes of activations of a part."""
        return float(sum(task.activation_bytes * times for task, times in self.parts[part]))


@cache
def model_of(name: str) -> Model:
    """Return a model of the catalogue, with positions for any pass."""
    model = load_model(name)
    return model.model_copy(update={"max_context": max(model.max_context, 2**18)})


@cache
def tasks_of(name: str, shape: PassShape) -> PassTasks:
    """Return the tasks of a pass with plain weights."""
    workload = Workload(prompt_tokens=shape.context, output_tokens=1, batch=shape.batch, context=shape.context + 1)
    everything = Select()
    placed = Placement(
        model_of(name),
        compose(None, "AMD EPYC 9654", 16 * 1024 * GIB, None),
        workload,
        residence=(Residence(select=everything, memory="dram", format="f16"),),
        kv=(KvRule(select=everything, memory="dram", format="f16"),),
        compute=(ComputeRule(select=everything, device="cpu"),),
    )
    made: dict[str, list[tuple[Task, int]]] = {"products": [], "head": [], "experts": [], "attention": [], "other": []}
    iteration = Iteration(
        1, "decode" if shape.phase == "decode" else "prefill", shape.batch, shape.tokens, shape.context
    )
    for run in lower_runs(placed, iteration).runs:
        for task in run.tasks:
            if task.kind == "linear":
                made["head" if task.layer is None else "products"].append((task, run.times))
            elif task.kind != "transfer":
                made[task.kind if task.kind in ("attention", "experts") else "other"].append((task, run.times))
    return PassTasks({part: tuple(tasks) for part, tasks in made.items()})
