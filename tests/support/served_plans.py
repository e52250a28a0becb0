"""Plans to be served: layer splits on machines of the catalogue."""

from functools import lru_cache

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.placement import Placement
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.serving.iteration_cost import ReplicaCost, replica_cost
from helmsman.planner.serving.replica import ReplicaOptions
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.workload import Workload

NEO_7B, NEO_8B, NEO_70B = (
    ("Llama-2-7b-hf", "t4-g4dn.4xlarge", 1),
    ("Llama-3.1-8B", "a10g-g5.4xlarge", 1),
    ("Llama-3.1-70B", "h100x2-hgx", 2),
)
"""Model, machine and accelerators of NEO's runs."""


def layer_split(model: str, machine: str | Hardware, on_host: int = 0, layers: int | None = None) -> Placement:
    """The first `on_host` units on the host, the rest on the accelerator, in f16; `layers`: of so many blocks."""
    found = load_model(model)
    if layers is not None:
        found = found.with_layers(layers)
    hardware = load_hardware(machine, None) if isinstance(machine, str) else machine
    options = SplitQuestion(weights="f16", kv="f16", objective="latency")
    split = LayerSplit(found, roles(hardware), Workload(), options, CostModel(hardware))
    return split.placement(on_host)


@lru_cache
def neo(model: str, machine: str, accelerators: int) -> ReplicaCost:
    """One of NEO's runs."""
    return replica_cost(layer_split(model, machine), ReplicaOptions(tensor_parallel=accelerators))
