"""The stages of serving: two on the accelerator, so that sub-batches take turns, and on the host one for each of them
and one for each cohort."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from helmsman.executor.cache.kv import Caches, Heads, Part, PlacedCache, kv_format
from helmsman.executor.cache.states import StateRows
from helmsman.executor.devices.base import ExecutorDevice
from helmsman.executor.devices.iterations import Cohort, Driver
from helmsman.executor.devices.parts import Buffer, CopyEngine, Stage
from helmsman.executor.devices.specs import RaggedSpec
from helmsman.executor.devices.tensors import Linear
from helmsman.executor.homes.staging import Staging, stage_weights
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.passes.phase_pass import PhasePass, fetching_layers
from helmsman.executor.routing.slot_room import SlotRooms
from helmsman.executor.routing.slots import layer_slots
from helmsman.executor.serving.away_experts import AwayExperts, LinkEngines
from helmsman.executor.serving.cache import BlockCache, allocate
from helmsman.executor.serving.served_slots import ServedSlots
from helmsman.executor.serving.state_store import StateStore
from helmsman.executor.serving.streams import TokenTable, streamed_weights, table_of
from helmsman.executor.stages.attention_block import attending_block
from helmsman.executor.stages.common_operations import embedding
from helmsman.executor.stages.dense import prepared
from helmsman.executor.stages.dimensions import attending_dimensions
from helmsman.executor.stages.layer_inputs import LayerInputRows
from helmsman.executor.stages.stage import StageBuilder
from helmsman.lowering.common_attention import attending_layers, attends_to_latents, served_caches
from helmsman.lowering.layer_cache import keeps_states
from helmsman.lowering.rules import Cached
from helmsman.planner.serving.layer_facts import host_attends, host_keeps, state_bytes
from helmsman.planner.serving.native_room import PASSING_LAYERS, passing_rows, rows_of_a_pass
from helmsman.scheduler.limits import HOST_ORDERS, HostOrder, Limits
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan

RISES: dict[HostOrder, int] = {"last": -1, "first": 1, "arrival": 0}
"""How the host's tasks rank with layers."""


@dataclass(frozen=True)
class Seating:
    """`driver`: of passes; `stages`: of the sub-batches, on the accelerator, of which the first has the head for both;
    `hosts`: of their rows on the host; `passing`: caches of prompts that go to its memory; `shared`: of the host,
    what bytes go to and come from; `states`: what mixers keep of requests and prompts, None where they keep nothing;
    `slots`: experts that are not all on the accelerator. Without a host all but the first three, `states` and `slots`
    are missing, and all stages but one; one that only keeps caches has `cpu` and `shared`."""

    driver: Driver
    stages: tuple[Stage, ...]
    gpu: BlockCache
    hosts: tuple[Stage, ...] = ()
    cpu: BlockCache | None = None
    passing: BlockCache | None = None
    cohorts: tuple[Cohort, ...] = ()
    shared: tuple[Buffer, ...] = ()
    states: StateStore | None = None
    slots: ServedSlots | None = None


def seat(
    plan: Plan,
    phase_pass: PhasePass,
    accelerator: ExecutorDevice,
    host: ExecutorDevice | None,
    store: WeightLoader,
    limits: Limits,
    order: HostOrder,
    engines: Mapping[str, CopyEngine],
) -> Seating:
    """Weights, caches and workspaces in their places; the host attends to cohorts in that order. `engines`: by link,
    what brings experts to slots, and messages and sums of those that the host computes.

    Raises InfeasibleError when a memory is too small, UsageError where the host cannot attend."""
    caches, fmt = served_caches(plan.model), kv_format(plan, attending_layers(plan.model))
    computes, host = host, host if limits.cpu_tokens else None
    if host is not None and keeps_states(plan.model):
        return _keeping(plan, phase_pass, accelerator, host, store, limits, engines)
    if host is not None and attends_to_latents(plan.model):
        remedy = "serve with the policy gpu-only"
        message = "latent attention beside the host, which attends to keys and values alone"
        raise UsageError(message, field="policy", value=plan.model.name, remedy=remedy)
    if host is not None and not host_attends(plan.model):
        message = "layers that attend in ways of their own beside the host, which attends to all that is past"
        raise UsageError(message, field="policy", value=plan.model.name, remedy="serve with the policy gpu-only")
    gpu = allocate(accelerator.memory, caches, limits.gpu_tokens, fmt, "blocks of keys and values")
    passing = None
    if host is not None:
        what = "keys and values on their way to the host"
        rows = passing_rows(plan, limits)
        passing = allocate(accelerator.memory, (caches * PASSING_LAYERS)[:PASSING_LAYERS], rows, fmt, what)
    memories = {accelerator.memory.name: accelerator.memory}
    (staging,) = stage_weights(plan, [phase_pass], memories, store, 1, tables=False)
    table = table_of(store, accelerator.memory, rows_of_a_pass(limits, host=host is not None), 1 + (host is not None))
    rooms = SlotRooms(plan, store, memories, fetching_layers([phase_pass]))
    states = _states(plan, accelerator, limits)
    spec = _spec(plan, phase_pass, accelerator, staging, table, store, limits, gpu, passing, rooms, states)
    stages = [_stage(accelerator, spec, "activations")]
    if host is not None:
        headless = _headless(spec, None if table is None else table.linear(1))
        stages.append(_stage(accelerator, headless, "activations"))
    away = None
    if computes is not None and computes.name in phase_pass.devices:
        away = _away(plan, phase_pass, computes, accelerator, store, rooms, engines, stages, spec["max_tokens"])
    slots = None
    if phase_pass.slotted or away is not None:
        seen = [(stage, accelerator.values(stage)) for stage in stages]
        slots = ServedSlots(layer_slots(plan, rooms, engines), phase_pass.slotted, seen, away)
    streamed = streamed_weights(plan, phase_pass, staging, store, stages[0], table)
    driver = accelerator.driver(streamed, () if slots is None else slots.lookups)
    if host is None:
        return Seating(driver, tuple(stages), gpu, states=_store_of(accelerator, states, limits), slots=slots)
    cpu = allocate(host.memory, caches, limits.cpu_tokens, fmt, "blocks of keys and values")
    aside = _host_spec(plan, spec, limits, cpu)
    one, other, *more = (_stage(host, aside, "activations of attention") for _ in range(2 + limits.cohorts))
    size, rows = driver.cohort_bytes(stages[0], limits.sequences), limits.sequences
    kept = [accelerator.memory.alloc(size, "activations of a cohort") for _ in more]
    cohorts = [driver.cohort(stages[0], *parts, rows, RISES[order]) for parts in zip(more, kept, strict=True)]
    shared = (cpu.buffer, *(stage.workspace for stage in (one, other, *more)))
    return Seating(driver, tuple(stages), gpu, (one, other), cpu, passing, tuple(cohorts), shared, slots=slots)


def _away(
    plan: Plan,
    phase_pass: PhasePass,
    host: ExecutorDevice,
    accelerator: ExecutorDevice,
    store: WeightLoader,
    rooms: SlotRooms,
    engines: Mapping[str, CopyEngine],
    stages: Sequence[Stage],
    most: int,
) -> AwayExperts:
    """Return the experts that the host computes for passes of up to `most` rows."""
    (staging,) = stage_weights(plan, [phase_pass], {host.memory.name: host.memory}, store, 1, tables=False)
    builder = StageBuilder(plan, store, Caches(False, plan.schedule.reshape), False, slots=rooms)
    uniform = builder.spec(phase_pass, staging, host, 0, most)
    spec: RaggedSpec = {**uniform, "batch": 1, "context": most, "capacity": 1, "sequences": 1, "passing": 0}
    layers = {use.layer for use in phase_pass.uses.values() if use.device == host.name and use.layer is not None}
    here, there = accelerator.memory.name, host.memory.name
    out, back = plan.hardware.link(here, there), plan.hardware.link(there, here)
    assert out is not None and back is not None, "checked with the places"
    return AwayExperts.seated(host, spec, layers, LinkEngines(engines[out.name], engines[back.name]), stages)


def _keeping(
    plan: Plan,
    phase_pass: PhasePass,
    accelerator: ExecutorDevice,
    host: ExecutorDevice,
    store: WeightLoader,
    limits: Limits,
    engines: Mapping[str, CopyEngine],
) -> Seating:
    """Return the places of an accelerator alone, and beside them room for what makes way: caches in blocks, and states
    of as many requests as may run."""
    if not host_keeps(plan.model):
        message = "a host that keeps caches of layers that cache unequal heads"
        raise UsageError(message, field="policy", value=plan.model.name, remedy="serve with `preemption` recompute")
    alone = seat(plan, phase_pass, accelerator, host, store, replace(limits, cpu_tokens=0), HOST_ORDERS[0], engines)
    assert alone.states is not None, "a model that keeps states"
    caches, fmt = served_caches(plan.model), kv_format(plan, attending_layers(plan.model))
    cpu = allocate(host.memory, caches, limits.cpu_tokens, fmt, "blocks of keys and values")
    kept = alone.states.rows.elsewhere(host.memory, limits.sequences, "states of requests that wait")
    return replace(alone, cpu=cpu, shared=(cpu.buffer, kept.buffer), states=replace(alone.states, host=kept))


def _states(plan: Plan, device: ExecutorDevice, limits: Limits) -> StateRows | None:
    """Return rows for states of requests that run and for snapshots; None where mixers keep nothing."""
    if not keeps_states(plan.model):
        return None
    what = "states of requests and of prompts"
    return StateRows(device.memory, limits.sequences + limits.snapshots, state_bytes(plan.model, 1), what)


def _store_of(device: ExecutorDevice, states: StateRows | None, limits: Limits) -> StateStore | None:
    return None if states is None else StateStore(device, states, limits.sequences, limits.snapshots)


def _headless(spec: RaggedSpec, table: Linear | None) -> RaggedSpec:
    """Return the stage without what follows the last block, and with a `table` of its own rows."""
    blocks = [op for op in spec["operations"] if op["block"] is not None]
    ends = [op for op in spec["operations"] if op["kind"] == "embedding"]
    if table is not None:
        ends = [embedding(table, op["looked_up"], op["positions"]) for op in ends]
    return {**spec, "sequences": 1, "operations": [*ends, *blocks]}


def _stage(device: ExecutorDevice, spec: RaggedSpec, what: str) -> Stage:
    return device.stage(spec, device.memory.alloc(device.workspace_size(spec), what), 0)


def _spec(
    plan: Plan,
    phase_pass: PhasePass,
    device: ExecutorDevice,
    staging: Staging,
    table: TokenTable | None,
    store: WeightLoader,
    limits: Limits,
    gpu: BlockCache,
    passing: BlockCache | None,
    rooms: SlotRooms,
    states: StateRows | None,
) -> RaggedSpec:
    """All operations, for rows of several requests."""
    lookup = None if table is None else table.linear(0)
    most = rows_of_a_pass(limits, host=passing is not None)
    caches, inputs = _caches(plan, device, gpu, states), LayerInputRows.of(plan.model, most)
    builder = StageBuilder(
        plan, store, caches, False, lookup, slots=rooms, sequences=limits.sequences, layer_inputs=inputs
    )
    uniform = builder.spec(phase_pass, staging, device, 0, most)
    if passing is not None:
        for op in uniform["operations"]:
            if op["block"] is not None and (op["kind"] == "append" or op["kind"] == "attention"):
                op["passing_keys"], op["passing_values"] = passing.parts(op["block"])
    rows = 0 if passing is None else passing.rows
    here = [op for op in uniform["operations"] if op["kind"] != "experts" or op["up"] is not None]
    uniform["operations"] = here  # passes go through all of them
    return {**uniform, "batch": 1, "capacity": gpu.rows, "sequences": limits.sequences, "passing": rows}


def _caches(plan: Plan, device: ExecutorDevice, cache: BlockCache, states: StateRows | None) -> Caches:
    """Return the caches that stages read and append to: every layer's part of the blocks, and of the states."""
    caches = Caches(False, plan.schedule.reshape, state_rows=states)
    nothing: dict[Cached, Part] = {"keys": (), "values": ()}
    layers = zip(attending_layers(plan.model), served_caches(plan.model), strict=True)
    for number, (layer, shape) in enumerate(layers):
        fmt, parts, heads = kv_format(plan, [layer]), cache.parts(number), range(shape.heads)
        keys, values = ((Heads(0, len(heads), part, fmt, False, heads, shape.key_dim),) for part in parts)
        read: dict[Cached, Part] = {"keys": keys, "values": values}
        caches.by_layer[device.memory.name, layer, 0] = PlacedCache(device.memory.name, read, nothing, nothing)
    return caches


def _host_spec(plan: Plan, spec: RaggedSpec, limits: Limits, cpu: BlockCache) -> RaggedSpec:
    """`append` and `attention` only: rows come normed and rotated."""
    made = prepared(
        {
            **attending_dimensions(plan.model),
            "batch": 1,
            "capacity": cpu.rows,
            "context": spec["context"],
            "max_tokens": limits.sequences,
            "sequences": 1,
            "passing": 0,
            "paged": False,
            "attention": "fused",
            "attention_activations": "f32",
            "looked_up": False,
            "kv_format": spec["kv_format"],
            "rotary_dim": 0,
            "cos": None,
            "sin": None,
            "embedding": None,
            "positions": None,
            "blocks": [attending_block(*cpu.parts(layer)) for layer in range(plan.model.layers)],
            "final_norm": None,
            "head": None,
        }
    )
    assert "sequences" in made, "rows of several sequences"
    return made
