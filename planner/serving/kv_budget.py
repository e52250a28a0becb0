"""Limits of a replica: what its memories hold beside weights, and how many tokens a pass has room for (NEO-42).

Within `utilisation` of its capacity an accelerator holds weights and caches; activations of a pass are in what is then
left of what is available, so beyond what driver and context take. The host's cache has all that is available there,
which leaves the record's reserve to the system. Where native devices serve, whose memory is the machine's and whose
engine touches all of what it allocates, no cache has more than as many requests as may run need; the one of the device
that computes has room for a request of any length, in half of what there is at most.

A plan for an engine that sizes its cache itself says so in its memories (`Memory.reserved`): then all that is available
beside weights and the engine's reserve is cache, and passes are as large as the engine lets them be. Where mixers keep
states, the accelerator also holds snapshots for prompts that begin alike, one for every few requests that may run, in a
part of the room that caches would have."""

from collections.abc import Mapping
from dataclasses import replace

from helmsman.lowering.layer_cache import keeps_states
from helmsman.lowering.placement import Placement
from helmsman.lowering.rules import kv_rule
from helmsman.planner.memory.cache_bytes import caches_by_memory
from helmsman.planner.memory.devices_used import devices_used
from helmsman.planner.memory.names import memory_place
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.serving.engine_reserve import PassLimits, card_count, reserved_bytes, usual_passes
from helmsman.planner.serving.layer_facts import held_values, host_attends, host_keeps, state_bytes, token_bytes
from helmsman.planner.serving.native_room import (
    host_beside,
    host_bytes,
    kept_values,
    native_device,
    resting_bytes,
    staying_bytes,
    working_bytes,
)
from helmsman.planner.serving.pipeline_parallel import elsewhere_bytes
from helmsman.planner.serving.replica import Replica, ReplicaOptions
from helmsman.planner.serving.slot_room import most_slots, slots_beside
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.hardware import Device
from helmsman.schemas.model import Model
from helmsman.schemas.predicted import MemoryUse
from helmsman.schemas.units import format_bytes
from helmsman.schemas.workload import Workload

LEAST_TOKENS = 2048
"""Tokens of a pass for whose activations room is kept, whatever the utilisation: vLLM's default of a pass."""

UTILISATION = 0.9
"""The share of an accelerator's capacity for weights and caches where nobody says another."""

SEQUENCES = 512
"""Requests that run at a time."""

NATIVE_SEQUENCES = 64
"""Requests that run at a time where native devices serve, which allocate for them."""

SHARED_BY = 4
"""Requests that may run for each snapshot: prompts that many begin with are few."""

SNAPSHOT_SHARE = 8
"""Snapshots have at most one part in so many of the room of caches."""

_SPAN = 2**15
"""Tokens over which a cache's bytes are averaged."""

_ONE = Workload(prompt_tokens=1, output_tokens=1, context=2)


def activation_bytes(model: Model, tokens: int, sequences: int, fmt: Format) -> int:
    """Most bytes of activations at a time in a pass of `tokens` of which `sequences` yield a token (NEO-20): what is
    held of each token, and logits in f32."""
    return size_of(tokens * held_values(model), fmt) + 4 * sequences * model.vocab


def _sequences(replica: Replica, options: ReplicaOptions) -> int:
    """Return how many requests run at a time on GPUs: as many as the engine runs, or fewer where mixers keep states of
    each, megabytes that are held for it whatever its length."""
    engine = _engine_passes(replica)
    usual = SEQUENCES if engine is None else engine.sequences
    return options.sequences or (NATIVE_SEQUENCES if keeps_states(replica.model) else usual)


def _engine_passes(replica: Replica) -> PassLimits | None:
    """Return the passes of an engine that sizes its cache itself; None where the plan is for none."""
    for device in replica.accelerators:
        memory = replica.hardware.memory(device.memory)
        if memory.reserved is not None:
            return usual_passes(device.product or "", memory.capacity)
    return None


def snapshots_of(model: Model, options: ReplicaOptions, sequences: int, room: float) -> int:
    """Return how many states of prompts are kept for others, beside those of requests, in `room` bytes for caches."""
    if not keeps_states(model):
        return 0
    if options.snapshots is not None:
        return options.snapshots
    return max(0, min(-(-sequences // SHARED_BY), int(room / SNAPSHOT_SHARE / state_bytes(model, 1))))


def limits_of(replica: Replica, options: ReplicaOptions) -> Limits:
    """Return what the replica holds; on a host that cannot attend nothing but what makes way. Raises InfeasibleError
    where no block of a cache has room, UsageError for a model whose caches are not served."""
    device = native_device(replica.plan) if replica.whole else None
    if not host_attends(replica.model) and not (options.stores and host_keeps(replica.model)):
        options = replace(options, cpu_tokens=0)
    limits = _of_gpus(replica, options) if device is None else _of_native(replica, options, device)
    return replace(limits, context=replica.model.max_context)


def _of_native(replica: Replica, options: ReplicaOptions, device: Device) -> Limits:
    """Where native devices serve, what their engine allocates."""
    plan, size = replica.plan, cached_token_bytes(replica)
    batch, sequences = options.batch_tokens or LEAST_TOKENS, options.sequences or NATIVE_SEQUENCES
    keeps, chunk = keeps_states(plan.model), options.chunk or 0
    limits = Limits(0, 0, batch, sequences, options.block, chunk, options.cohorts, states=keeps)
    host = host_beside(plan.hardware, device.name) if replica.away is not None else None
    used = 0 if host is None else host_bytes(plan, limits) + resting_bytes(plan, host)
    left = 0 if host is None else plan.hardware.memory(host.memory).available - used
    needed = sequences * limits.blocks(plan.workload.context) * limits.block
    cpu = _tokens(left // size, needed if options.cpu_tokens is None else options.cpu_tokens, options)
    memory = plan.hardware.memory(device.memory)
    within = min(
        int((options.utilisation or UTILISATION) * memory.capacity),
        memory.available - working_bytes(plan, limits, host=cpu > 0),
    )
    room = within - staying_bytes(plan, device)
    snapshots = snapshots_of(plan.model, options, sequences, room)
    room -= state_bytes(plan.model, snapshots)
    most = options.gpu_tokens
    if most is None:  # all requests that may run, or one of the longest context where that takes half the room at most
        most = max(needed, min(replica.model.max_context, room // size // 2))
    gpu = _gpu_tokens(replica, {memory.name: room}, {memory.name: size}, most, options)
    return replace(limits, gpu_tokens=gpu, cpu_tokens=cpu, snapshots=snapshots)


def _of_gpus(replica: Replica, options: ReplicaOptions) -> Limits:
    """For everything else, what engines of GPUs do (NEO-20)."""
    passing, sequences = _passing(replica, options), _sequences(replica, options)
    rooms = _rooms(replica, options, 0)
    working = min(room for memory, room in rooms.items() if memory in _working(replica))
    options = replace(options, snapshots=snapshots_of(replica.model, options, sequences, working))
    gpu, cpu = min(_stage_tokens(replica, options, stage) for stage in range(len(replica.layers))), 0
    if replica.away is not None:
        home, states = replica.host.memory, 0 if host_attends(replica.model) else state_bytes(replica.model, sequences)
        left = rooms[home] - gpu * _token_bytes(replica, 0).get(home, 0.0) - states
        cpu = _tokens(int(left // cached_token_bytes(replica)), options.cpu_tokens, options)
    whole = 0 if _engine_passes(replica) is None else passing
    chunk = whole if options.chunk is None else options.chunk
    limits = Limits(gpu, cpu, passing, sequences, options.block, chunk, options.cohorts)
    return replace(limits, states=keeps_states(replica.model), snapshots=options.snapshots or 0)


def _stage_tokens(replica: Replica, options: ReplicaOptions, stage: int) -> int:
    """Tokens for whose part of a stage's layers there is room beside its weights."""
    token_bytes, shared = _token_bytes(replica, stage), state_bytes(replica.model, options.snapshots or 0)
    rooms = _rooms(replica, options, stage)
    rooms = {memory: room - (memory in _working(replica)) * shared for memory, room in rooms.items()}
    return _gpu_tokens(replica, rooms, token_bytes, options.gpu_tokens, options)


def _gpu_tokens(
    replica: Replica,
    rooms: Mapping[str, int],
    token_bytes: Mapping[str, float],
    most: int | None,
    options: ReplicaOptions,
) -> int:
    """Tokens for whose every part there is room, `most` of them at most.

    Raises InfeasibleError where that is no block."""
    here = {memory: int(rooms[memory] // size) for memory, size in token_bytes.items()}
    gpu = _tokens(min(here.values()), most, options)
    if gpu < options.block:
        full = [memory for memory in here if here[memory] < options.block]
        block, request = (
            {memory: round(tokens * token_bytes[memory] - rooms[memory]) for memory in full}
            for tokens in (options.block, replica.plan.workload.context)
        )
        raise _no_room(replica.plan, block, slots_beside(replica.plan, request))
    return gpu


def cached_token_bytes(replica: Replica) -> int:
    """Keys and values of one token in the host's cache, all layers and heads of them."""
    return token_bytes(replica.model, kv_rule(replica.plan, 0).used)


def _rooms(replica: Replica, options: ReplicaOptions, stage: int) -> dict[str, int]:
    """By memory, bytes for caches: beside weights and buffers, and activations where operations work."""
    rooms = {
        use.memory: _within(replica, options, use.memory) - use.weights - _beside(replica, options, use)
        for use in memory_use(_of_stage(replica, stage, _ONE))
    }
    if len(replica.layers) > 1:
        rooms[replica.accelerators[0].memory] += elsewhere_bytes(replica.plan, stage, len(replica.layers))
    return rooms


def _beside(replica: Replica, options: ReplicaOptions, use: MemoryUse) -> int:
    """Return bytes of a memory for buffers, or for all that an engine keeps."""
    engine = _engine_passes(replica)
    if engine is None or replica.hardware.memory(use.memory).reserved is None:
        return use.buffers
    passes = PassLimits(options.batch_tokens or engine.tokens, _sequences(replica, options))
    states = state_bytes(replica.plan.model, passes.sequences)
    cards = card_count(replica.accelerators[0])
    each = reserved_bytes(replica.plan.model, passes, replica.plan.activations, replica.model.vocab)
    return cards * each + states


def _of_stage(replica: Replica, stage: int, workload: Workload) -> Placement:
    """The plan of a stage's layers, on the first accelerator as all are equal, with both ends."""
    if len(replica.layers) == 1:
        return replace(replica.plan, workload=workload)
    model = replica.plan.model.with_layers(replica.layers[stage])
    return replace(replica.plan, workload=workload, model=model)


def _within(replica: Replica, options: ReplicaOptions, name: str) -> int:
    """Bytes of a memory for what stays: all that is available, less where operations work."""
    memory = replica.hardware.memory(name)
    if name not in _working(replica) or (memory.reserved is not None and options.utilisation is None):
        return memory.available
    batch = LEAST_TOKENS if options.batch_tokens is None else -(-options.batch_tokens // len(replica.layers))
    least = 0 if memory.reserved is not None else _activations(replica, options, batch)
    return min(int((options.utilisation or UTILISATION) * memory.capacity), memory.available - least)


def _passing(replica: Replica, options: ReplicaOptions) -> int:
    """Tokens of a pass whose activations have room beside what stays, in every memory where operations work: of as many
    micro-batches as there are stages."""
    if options.batch_tokens is not None:
        return options.batch_tokens
    engine = _engine_passes(replica)
    if engine is not None:
        return engine.tokens
    none = _activations(replica, options, 0)
    token_bytes = _activations(replica, options, 1) - none
    memories = [replica.hardware.memory(name) for name in _working(replica)]
    room = min((memory.available - _within(replica, options, memory.name) - none) // token_bytes for memory in memories)
    return len(replica.layers) * room


def _working(replica: Replica) -> set[str]:
    return {replica.hardware.device(name).memory for name in devices_used(replica.plan)}


def _activations(replica: Replica, options: ReplicaOptions, tokens: int) -> int:
    model, fmt = replica.plan.model, replica.plan.activations
    sequences = _sequences(replica, options)
    kept = size_of((options.cohorts - 1) * kept_values(model, sequences), fmt)  # a pass has room for rows of the first
    return activation_bytes(model, tokens, sequences, fmt) + kept + state_bytes(model, sequences)


def _token_bytes(replica: Replica, stage: int) -> dict[str, float]:
    """By memory, bytes that a token's keys and values take there: an average over many, for caches come in pages."""
    work = Workload(prompt_tokens=1, output_tokens=1, context=_SPAN)
    sizes = caches_by_memory(_of_stage(replica, stage, work))
    return {memory: size / _SPAN for memory, size in sizes.items()}


def _tokens(room: int, most: int | None, options: ReplicaOptions) -> int:
    """Tokens in whole blocks: as many as have room, and as were asked for at most."""
    return max(0, room if most is None else min(room, most)) // options.block * options.block


def _no_room(plan: Placement, lacks: dict[str, int], slots: int | None) -> InfeasibleError:
    """`slots`: of how many experts a layer may have slots beside a request of the plan's context."""
    memory, missing = max(lacks.items(), key=lambda lack: lack[1])
    beside = "weights" if slots is None else "weights, slots for experts"
    larger = "for a larger `batch` or `context`"
    if slots is not None:
        larger = f"with `expert_slots` {slots} instead of {most_slots(plan)} (`strategy` freetoken), or {larger}"
    return InfeasibleError(
        f"no room for keys and values {memory_place(plan.hardware, memory)} beside {beside} and activations",
        field=f"hardware.memories.{memory}",
        lacks=lacks,
        remedy=f"free {format_bytes(missing)}: plan {larger}, use smaller formats, pass fewer tokens at a time, or a "
        "larger share of the memory",
    )
