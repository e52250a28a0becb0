"""Online passes for tests: a plan that serves, what a pass has to do, and its tasks priced by IterationCost."""

from collections.abc import Callable
from random import Random

from plans import figure, make_hardware, make_plan
from serving_iteration import PromptChunk, ServingIteration, SubBatch

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import CACHED, Task
from helmsman.lowering.serving_names import HOST_ATTENTION
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.pass_work import PassWork
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan

PRE = 0.2
"""Of a linear stage, the part before attention."""


def wide(hardware: Hardware) -> Hardware:
    """A machine whose memories and links are never contended."""
    rate = {"bandwidth": figure(1e18)}
    memories = tuple(memory.model_copy(update=rate) for memory in hardware.memories)
    links = tuple(link.model_copy(update=rate) for link in hardware.links)
    return hardware.model_copy(update={"memories": memories, "links": links})


def serving_plan(layers: int, on_cpu: int = 0) -> Plan:
    """Everything on the accelerator; `on_cpu` 1: but for the embedding."""
    model = load_model("Qwen3-0.6B").with_layers(layers)
    return make_plan(model, on_cpu, hardware=wide(make_hardware()))


def work_of(batch: SubBatch, swap_out: int = 0, swap_in: int = 0) -> PassWork:
    """What a sub-batch has to do, as closed forms count it."""
    return PassWork(
        tokens=batch.tokens,
        outputs=batch.outputs,
        gpu_requests=len(batch.gpu),
        gpu_kv=sum(batch.gpu),
        pairs=sum(chunk.pairs for chunk in batch.prompts),
        prompt_kv=sum(chunk.context for chunk in batch.prompts),
        cpu_requests=len(batch.cpu),
        cpu_kv=sum(batch.cpu),
        swap_out=swap_out + batch.leaving,
        swap_in=swap_in + batch.returning,
    )


def priced(cost: IterationCost, plan: Plan) -> Callable[[Task], float]:
    """Seconds of tasks that add up to what `cost` says of stages; a linear stage is all in its last operations."""
    model = plan.model
    row = 2 * model.dense.kv_width * 4
    sent = row + model.dense.q_width * 4

    def attention(task: Task) -> float:
        read = task.bytes / row
        if task.op == HOST_ATTENTION:
            return cost.cpu_attention(read) + cost.cpu_request * task.tokens
        if task.phase == "prefill":
            return max(cost.prefill_compute(task.flops / (4 * model.dense.q_width)), cost.prefill_read(read))
        return cost.gpu_attention(read) + cost.gpu_request * task.tokens

    def transfer(task: Task) -> float:
        if task.payload in CACHED:
            return (cost.swap_in if task.payload == "swapped in" else cost.swap_out)(task.bytes / row)
        return cost.to_host(task.bytes / sent) if task.op == "qkv" else cost.to_device(task.bytes / (sent - row))

    def seconds(task: Task) -> float:
        if task.kind in ("attention", "transfer"):
            return attention(task) if task.kind == "attention" else transfer(task)
        linear = {"append": PRE, "down": 1 - PRE}.get(task.op, 0.0) * cost.linear(task.tokens)
        return cost.ends(task.tokens) if task.op == "head" else linear

    return seconds


def line(per_unit: float, floor: float = 0.0) -> Line:
    return Line((0.0, 1.0), (floor, floor + per_unit))


def random_cost(chance: Random, layers: int, link: float) -> IterationCost:
    """Linear stages that are flat at first; `link`: seconds of transfers, of those of host attention, at most."""
    flat, knee = chance.uniform(0.5, 1.5), chance.uniform(4, 64)
    cpu = chance.uniform(0.001, 0.02)
    to_host, to_device = (chance.uniform(0.0, link) * cpu * 100 for _ in range(2))
    return IterationCost(
        layers=layers,
        linear=Line((0.0, knee, 2 * knee), (flat, flat, 2 * flat)),
        gpu_attention=line(chance.uniform(0.0001, 0.002)),
        prefill_compute=line(chance.uniform(0.0, 0.0002)),
        prefill_read=line(chance.uniform(0.0, 0.002)),
        cpu_attention=line(cpu),
        cpu_request=chance.uniform(0.0, 0.02),
        to_host=line(to_host),
        to_device=line(to_device),
        swap_out=line(0.0),
        swap_in=line(0.0),
        ends=line(0.0, chance.uniform(0.0, flat)),
    )


def random_two(chance: Random, index: int = 1) -> ServingIteration:
    """Two sub-batches: the first with prompts in half of the cases, most requests of the host's cache in the second."""

    def contexts(most: int, least: int = 0) -> tuple[int, ...]:
        return tuple(chance.randint(10, 400) for _ in range(chance.randint(least, most)))

    chunks = chance.choice([0, 0, 1, 2])
    prompts = tuple(PromptChunk(chance.randint(1, 128), chance.choice([0, 0, 64])) for _ in range(chunks))
    first = SubBatch(prompts, contexts(12, 1), contexts(3))
    return ServingIteration(index, "two-sub-batches", (first, SubBatch(cpu=contexts(16, 1))))
