"""What serving needs of memories, and how many blocks they have room for beside it."""

from dataclasses import replace

from helmsman.executor.passes import passes_of
from helmsman.executor.serving.places import Places, places_of
from helmsman.executor.serving.seating import PASSING_LAYERS, joint_rows, passing_rows
from helmsman.lowering.buffers import kept_bytes, ragged_workspace_bytes
from helmsman.lowering.rules import kv_rule
from helmsman.planner.memory import memory_use
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.formats import rows_size
from helmsman.schemas.plan import Plan
from helmsman.schemas.units import format_bytes


def fitted(plan: Plan, limits: Limits) -> Limits:
    """`limits` with no more tokens in either cache than the plan's memories have room for, in whole blocks.

    Raises UsageError for a plan that does not serve, InfeasibleError where no block has room on the accelerator."""
    places = places_of(plan, passes_of(plan))
    host = None if not limits.cpu_tokens else places.host
    gpu = min(limits.gpu_tokens, _tokens(plan, places.accelerator, beside(plan, limits, places)))
    cpu = 0 if host is None else min(limits.cpu_tokens, _tokens(plan, host, _host_bytes(plan, limits)))
    gpu, cpu = (tokens // limits.block * limits.block for tokens in (gpu, cpu))
    if gpu < limits.block:
        memory = plan.hardware.memory(plan.hardware.device(places.accelerator).memory)
        remedy = "serve fewer requests at a time, or fewer tokens in a pass"
        value = format_bytes(memory.available)
        raise InfeasibleError("no block of keys and values has room", field=memory.name, value=value, remedy=remedy)
    return replace(limits, gpu_tokens=gpu, cpu_tokens=cpu)


def beside(plan: Plan, limits: Limits, places: Places) -> int:
    """Bytes of the accelerator's memory that are no blocks, at most: weights, activations, what passes through."""
    name = plan.hardware.device(places.accelerator).memory
    weights = sum(use.weights for use in memory_use(plan) if use.memory == name) + kept_bytes(plan.model, plan.workload)
    model, rows = plan.model, joint_rows(limits)
    if places.host is None or not limits.cpu_tokens:
        return weights + ragged_workspace_bytes(model, limits.batch_tokens, limits.sequences)
    work = ragged_workspace_bytes(model, rows, limits.sequences) + ragged_workspace_bytes(model, rows, 1)
    cohort = 4 * limits.sequences * (model.hidden + 2 * model.q_width + 2 * model.kv_width)
    layer = token_bytes(plan) // model.layers
    return weights + work + cohort + PASSING_LAYERS * layer * passing_rows(plan, limits)


def token_bytes(plan: Plan) -> int:
    """Keys and values of one token, all layers of them."""
    rows = 2 * plan.model.layers * plan.model.kv_heads
    return rows_size(rows, plan.model.head_dim, kv_rule(plan, 0).used)


def _host_bytes(plan: Plan, limits: Limits) -> int:
    return 3 * ragged_workspace_bytes(plan.model, limits.sequences, 1)


def _tokens(plan: Plan, device: str, used: int) -> int:
    """Tokens that a device's memory has room for beside `used` bytes."""
    left = plan.hardware.memory(plan.hardware.device(device).memory).available - used
    return max(0, left // token_bytes(plan))
