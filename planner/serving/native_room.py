"""Memory that our own devices allocate to serve beside blocks of keys and values, in closed form: the engine's seats
(`executor.serving.seating`) have their sizes from here."""

from dataclasses import replace

from helmsman.lowering.buffers import gathering_bytes, kept_bytes, model_expansion_bytes, ragged_workspace_bytes
from helmsman.lowering.placement import Placed, Placement
from helmsman.lowering.rules import homes, kv_rule, residence
from helmsman.lowering.tensors import embedding_tensors
from helmsman.planner.memory.alike_blocks import counted_tensors
from helmsman.planner.memory.buffers import staging_bytes
from helmsman.planner.memory.cache_bytes import caches_by_memory
from helmsman.planner.memory.devices_used import devices_beside_experts, devices_used
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.serving.layer_facts import (
    cached_values,
    host_attends,
    layer_bytes,
    query_width,
    state_bytes,
    token_bytes,
)
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.formats import is_plain, size_of
from helmsman.schemas.hardware import NATIVE_KINDS, Device, Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.units import format_bytes

PASSING_LAYERS = 2
"""Layers whose caches may pass through the accelerator at a time: one is computed while the one before leaves."""


def native_device(placed: Placed) -> Device | None:
    """The one native device that computes everything but experts of the host beside it, on caches that live there, from
    weights that do or come from that host; None for other placements."""
    used = devices_beside_experts(placed)
    device = placed.hardware.device(used[0])
    if len(used) > 1 or device.kind not in NATIVE_KINDS or set(caches_by_memory(placed)) != {device.memory}:
        return None
    host = host_beside(placed.hardware, device.name)
    if not {device.name, *([] if host is None else [host.name])}.issuperset(devices_used(placed)):
        return None
    memories = {device.memory} if host is None else {device.memory, host.memory}
    pieces = (piece for tensor, _ in counted_tensors(placed) for piece in homes(placed, tensor))
    return device if all(piece.rule.memory in memories for piece in pieces) else None


def host_beside(hardware: Hardware, accelerator: str) -> Device | None:
    """The CPU that attends beside `accelerator`, of cores of its own and with links both ways."""
    record = hardware.device(accelerator)
    for host in hardware.devices:
        if host.kind != "cpu" or host.name == accelerator or host.name in record.excludes:
            continue
        if hardware.link(record.memory, host.memory) and hardware.link(host.memory, record.memory):
            return host
    return None


def rows_of_a_pass(limits: Limits, *, host: bool) -> int:
    """Rows that a sub-batch may have at a time: with a `host` beside a pass's also those of a cohort, or of the other's
    outputs."""
    return limits.batch_tokens + host * limits.sequences


def passing_rows(placed: Placed, limits: Limits) -> int:
    """Tokens of a layer that may pass through at a time: of a pass, and of one prompt those before them."""
    return limits.batch_tokens + placed.workload.context


def staying_bytes(placed: Placed, device: Device) -> int:
    """Weights in the memory of the device that computes, where others arrive in every pass, and what is kept in f32."""
    rows = placed.workload.model_copy(update={"prompt_tokens": 1})  # all of a pass go through an operation together
    rules = placed.residence, placed.kv, placed.compute
    others = placed.activations, placed.schedule, placed.expert_slots
    placement = Placement(placed.model, placed.hardware, rows, *rules, *others)
    return (
        _weights(placed, device.memory)
        + staging_bytes(placement, device.memory)
        + kept_bytes(placed.model, placed.workload)
    )


def resting_bytes(placed: Placed, host: Device) -> int:
    """Weights in the memory of the host, from where they come in every pass."""
    weights = _weights(placed, host.memory)
    return weights + kept_bytes(placed.model, placed.workload) if weights else 0


def _weights(placed: Placed, memory: str) -> int:
    return sum(use.weights for use in memory_use(placed) if use.memory == memory)


def kept_values(model: Model, rows: int) -> int:
    """Values kept of a cohort between passes: hidden states, queries, keys, values, and what attention gives."""
    return rows * (model.hidden + 2 * query_width(model) + cached_values(model))


def working_bytes(placed: Placed, limits: Limits, *, host: bool) -> int:
    """Activations of the device that computes, and what mixers keep of requests and of prompts that others may share;
    with a `host` that attends beside it activations of two sub-batches and of cohorts, and caches that pass through."""
    host = host and host_attends(placed.model)
    model, rows, sequences = placed.model, rows_of_a_pass(limits, host=host), limits.sequences
    looked_up = rows * _looked_up_bytes(placed)
    if not host:
        states = state_bytes(model, sequences + limits.snapshots)
        return looked_up + ragged_workspace_bytes(model, rows, sequences) + states
    work = 2 * looked_up + ragged_workspace_bytes(model, rows, sequences) + ragged_workspace_bytes(model, rows, 1)
    kept = 4 * limits.cohorts * kept_values(model, sequences)
    layer = layer_bytes(model, passing_rows(placed, limits), kv_rule(placed, 0).used)
    return work + kept + PASSING_LAYERS * layer


def _looked_up_bytes(placed: Placed) -> int:
    """Of a token's row, if the table is elsewhere."""
    table = residence(placed, embedding_tensors(placed.model)[0])
    here = placed.hardware.device(devices_beside_experts(placed)[0]).memory in (table.memory, *table.replicas)
    return 0 if here else size_of(placed.model.hidden, table.format)


def host_bytes(placed: Placed, limits: Limits) -> int:
    """Activations of the host's attention, of both sub-batches and of cohorts; of one that only keeps caches, states of
    as many requests as may run; and those of experts, where it computes some."""
    experts = _expert_bytes(placed, limits)
    if not host_attends(placed.model):
        return experts + state_bytes(placed.model, limits.sequences)
    return experts + (2 + limits.cohorts) * ragged_workspace_bytes(placed.model, limits.sequences, 1)


def _expert_bytes(placed: Placed, limits: Limits) -> int:
    """Return activations of experts that the host computes beside the device that does the rest."""
    if len(devices_used(placed)) == len(devices_beside_experts(placed)):
        return 0
    return ragged_workspace_bytes(placed.model, rows_of_a_pass(limits, host=bool(limits.cpu_tokens)), 1)


def fitted(placed: Placed, limits: Limits) -> Limits:
    """`limits` with no more tokens in either cache than there is room for where a PyTorch device serves, which gathers
    blocks and expands weights beside what native devices allocate.

    Raises InfeasibleError where no block has room."""
    device = placed.hardware.device(devices_beside_experts(placed)[0])
    host = host_beside(placed.hardware, device.name) if limits.cpu_tokens else None
    attends = host is not None and host_attends(placed.model)
    work = working_bytes(placed, limits, host=attends) + _gathered(placed, limits, attends)
    memory = placed.hardware.memory(device.memory)
    gpu = _blocks_of(placed, limits, memory.available - staying_bytes(placed, device) - work, limits.gpu_tokens)
    if not gpu:
        remedy, room = "serve fewer requests at a time, or fewer tokens in a pass", format_bytes(memory.available)
        raise InfeasibleError("no block of keys and values has room", field=memory.name, value=room, remedy=remedy)
    left = 0 if host is None else placed.hardware.memory(host.memory).available - host_bytes(placed, limits)
    return replace(limits, gpu_tokens=gpu, cpu_tokens=_blocks_of(placed, limits, left, limits.cpu_tokens))


def _blocks_of(placed: Placed, limits: Limits, room: int, most: int) -> int:
    """Tokens in whole blocks that have room, at most so many."""
    size = token_bytes(placed.model, kv_rule(placed, 0).used)
    return min(max(0, room) // size, most) // limits.block * limits.block


def _gathered(placed: Placed, limits: Limits, both: bool) -> int:
    """Of a device that reads neither quantised values nor blocks by itself: of attention, and of one or both stages."""
    plain = all(is_plain(rule.used) for rule in placed.residence)
    expanded = 0 if plain else model_expansion_bytes(placed.model)
    return (1 + both) * expanded + gathering_bytes(placed.model, placed.workload.context, limits.sequences)
