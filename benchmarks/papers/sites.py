"""Where NEO and APEX ran: models on records, as replicas of the planner (NEO-32, 33, APEX-32, 33)."""

from dataclasses import dataclass, fields, replace
from functools import lru_cache

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.serving.iteration_cost import ReplicaCost, replica_cost
from helmsman.planner.serving.replica import ReplicaOptions
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.scheduler.cost import Line
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.workload import Workload


@dataclass(frozen=True, slots=True)
class Site:
    """A model in f16 on `accelerators` of a machine of the catalogue, all weights there.

    `host_time`: attention on the host takes so many times as long as by the record, to see what hangs on it.
    `gpu_tokens`, `batch_tokens`: of the accelerator's cache and in a pass, as a run was configured; 0: what fits.
    `machines`: so many of them work as one that is so many times as large, which whole requests fill better."""

    name: str
    model: str
    machine: str
    accelerators: int = 1
    host_time: float = 1.0
    gpu_tokens: int = 0
    batch_tokens: int = 0
    machines: int = 1


H100 = Site("2x H100, 70B", "Llama-3.1-70B", "h100x2-hgx", 2)
H100_POOL = replace(H100, name="8 times 2x H100, 70B", machines=8)
A10G = Site("A10G, 8B", "Llama-3.1-8B", "a10g-g5.4xlarge")
T4 = Site("T4, 7B", "Llama-2-7b-hf", "t4-g4dn.4xlarge")
G5 = tuple(Site(f"g5.{size}xlarge", "Llama-3.1-8B", f"a10g-g5.{size}xlarge") for size in (2, 4, 8, 16))
T4_RUN = replace(T4, name="T4, 7B, NEO's cache", gpu_tokens=54 * 16, batch_tokens=832)
G5_RUN = tuple(replace(site, gpu_tokens=1_650 * 16, batch_tokens=20_480) for site in G5)
"""As the configuration files of NEO's evaluation have it (its repository, b55aaab): less than fits."""
APEX_A10 = Site("A10, 8B", "Llama-3.1-8B", "a10-xeon6342")
APEX_T4 = Site("T4, 7B", "Llama-2-7b-hf", "t4-xeon6130")


@lru_cache(maxsize=32)
def replica(site: Site, chunk: int = 0) -> ReplicaCost:
    """What passes cost there, and what fits; `chunk`: of prompts, 0 for whole ones."""
    hardware = load_hardware(site.machine, None)
    found = replica_on(hardware, site.model, ReplicaOptions(tensor_parallel=site.accelerators, chunk=chunk))
    limits = replace(
        found.limits,
        gpu_tokens=site.gpu_tokens or found.limits.gpu_tokens,
        batch_tokens=site.batch_tokens or found.limits.batch_tokens,
    )
    return pooled(ReplicaCost(found.cost.scaled(cpu_attention=site.host_time), limits), site.machines)


def pooled(found: ReplicaCost, machines: int) -> ReplicaCost:
    """Machines that take as long for as many times the work, with as many times the room: nothing but whole requests
    tells them from one."""
    cost, limits = found.cost, found.limits
    lines = {each.name: line for each in fields(cost) if isinstance(line := getattr(cost, each.name), Line)}
    wider = {name: Line(tuple(machines * x for x in line.x), line.y) for name, line in lines.items()}
    larger = {name: machines * getattr(limits, name) for name in _ROOM}
    return ReplicaCost(replace(cost, cpu_request=cost.cpu_request / machines, **wider), replace(limits, **larger))


_ROOM = ("gpu_tokens", "cpu_tokens", "batch_tokens", "chunk", "sequences")


def host_share(site: Site) -> float:
    """Speed of decode attention on the host over that on the accelerator (APEX's N_C / N_G), of a full cache."""
    found = replica(site)
    tokens = found.limits.gpu_tokens
    return found.cost.gpu_attention(tokens) / found.cost.cpu_attention(tokens)


def replica_on(hardware: Hardware, model: str, options: ReplicaOptions) -> ReplicaCost:
    """A replica on any machine."""
    found, work = load_model(model), Workload()
    split = LayerSplit(found, roles(hardware), work, SplitQuestion(objective="latency"), CostModel(hardware))
    return replica_cost(split.placement(0), options)
