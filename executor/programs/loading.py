"""From a plan to programs: weights and caches in their places, stages made of them, moves between them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import CopyEngine, Queue
from helmsman.executor.cache.kv import Caches, allocate_caches
from helmsman.executor.cache.pager import Pager
from helmsman.executor.devices.base import PageLocked
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.move_calls import UNLIMITED, Move
from helmsman.executor.devices.opening import Devices
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.homes.staging import longest, stage_weights
from helmsman.executor.homes.storage import Storage
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.moves.transfers import Transfers
from helmsman.executor.passes.chains import allocate_stops
from helmsman.executor.passes.expert_check import come_late
from helmsman.executor.passes.halves import halves_of
from helmsman.executor.passes.phase_pass import PhasePass, fetching_layers, goes_on, page_links, rewinds
from helmsman.executor.passes.phase_program import PhaseProgram
from helmsman.executor.programs.order import PIN_LANE, order
from helmsman.executor.programs.program import Lanes, Program
from helmsman.executor.programs.prompt_program import PromptProgram
from helmsman.executor.routing.record import RoutingRecord
from helmsman.executor.routing.slot_room import SlotRooms
from helmsman.executor.routing.slots import LayerSlots, layer_slots
from helmsman.executor.stages.seats import Seats, take_seats
from helmsman.executor.stages.stage import divides
from helmsman.executor.weights.opening import open_weights
from helmsman.lowering.buffers import chunk_of
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.hardware import lane_owner
from helmsman.schemas.plan import Plan


@dataclass(frozen=True)
class LoadedPlan:
    """`rewinds`: whether a prompt may follow any part of what is cached; `goes_on`: at least all of it.

    `tokens`: of every batch, an int32 view of what the embedding reads and, after a pass, of the choice.

    `pinned`: what is page-locked until it is released; `kept`: the caches, and what takes submissions; `slots`: for
    experts, by layer; `late`: whether these come to prompts later than planned; `seats`: by phase."""

    programs: Mapping[Phase, PhaseProgram]
    rewinds: bool
    goes_on: bool
    tokens: tuple[NDArray[np.int32], ...]
    pinned: PageLocked | None = None
    kept: tuple[Caches, Lanes] | None = None
    slots: Mapping[int, LayerSlots] = field(default_factory=dict)
    late: bool = False
    seats: Mapping[Phase, Seats] = field(default_factory=dict)


def open_store(
    plan: Plan, devices: Devices, storage: Storage, checkpoint: Path, on_bytes: Callable[[int], None]
) -> WeightLoader:
    """The weights of `checkpoint`, brought to their homes as they are asked for."""
    return WeightLoader(plan, open_weights(checkpoint, plan.model), dict(devices.memories), storage, on_bytes)


def prepare(
    plan: Plan,
    passes: tuple[PhasePass, PhasePass],
    devices: Devices,
    storage: Storage,
    store: WeightLoader,
    max_tokens: int,
    lanes: Lanes | None = None,
    routing: RoutingRecord | None = None,
) -> LoadedPlan:
    """Prepare the passes of `plan`, for prompts of up to `max_tokens`; `lanes`: those of passes before; `routing`:
    where routers record what they choose."""
    memories = devices.memories
    caches = allocate_caches(plan, memories, divides(passes))
    stagings = stage_weights(plan, passes, memories, store, max_tokens)
    rooms = SlotRooms(plan, store, memories, fetching_layers(passes))
    seats = take_seats(plan, passes, stagings, devices, store, caches, max_tokens, routing, rooms)
    transfers = [
        Transfers(plan, one_pass, its, staging, store, caches, storage, partial(rooms.scratch, max_tokens))
        for one_pass, its, staging in zip(passes, seats, stagings, strict=True)
    ]
    rest = allocate_stops([size for transfer in transfers for size in transfer.stop_sizes()], memories)
    lanes = lanes or open_lanes(plan, passes, devices, caches)
    slots = layer_slots(plan, rooms, lanes.engines)
    programs: dict[Phase, PhaseProgram] = {}
    for one_pass, moves in zip(passes, transfers, strict=True):
        moves.stops.rest = rest
        programs[one_pass.phase] = _program(moves, lanes, longest(one_pass, max_tokens), slots)
    embedding = passes[0].device_of("embedding")
    tokens = tuple(view(its.tokens, np.int32) for (name, _), its in sorted(seats[0].items()) if name == embedding)
    pinned = devices.accelerators.pin((*_pinned(passes, transfers), *_homes(rooms)))
    return LoadedPlan(
        programs,
        rewinds(passes),
        goes_on(passes),
        tokens,
        pinned,
        (caches, lanes),
        slots,
        come_late(passes),
        {one_pass.phase: its for one_pass, its in zip(passes, seats, strict=True)},
    )


def _program(moves: Transfers, lanes: Lanes, tokens: int, slots: Mapping[int, LayerSlots]) -> PhaseProgram:
    """The program of passes of up to so many tokens, of which every chunk goes through what devices share."""
    phase_pass, size = moves.phase_pass, chunk_of(moves.plan)

    def make(chunks: int | None) -> Program:
        ordered = order(phase_pass, moves.staging, moves.caches, moves.seats, moves.stops.by_task, chunks)
        return Program(phase_pass, ordered, moves.seats, moves, lanes, slots)

    if tokens > size and any(half.divided for half in halves_of(phase_pass)):
        return PromptProgram(make, size, -(-tokens // size))
    return make(1 if tokens > size else None)


def _pinned(passes: Sequence[PhasePass], transfers: Sequence[Transfers]) -> Iterator[Buffer]:
    """Both ends of everything that leaves its home page-locked (PARK-13)."""
    for one_pass, moves in zip(passes, transfers, strict=True):
        for index, task in enumerate(one_pass.tasks):
            if task.kind == "transfer" and task.path == "pinned" and not one_pass.comes_to_slots(index):
                for move in moves.moves(index):
                    yield move.target
                    if isinstance(move, Move):
                        yield move.source


def _homes(rooms: SlotRooms) -> Iterator[Buffer]:
    """Yield the matrices from which experts come to slots."""
    for room in rooms.of_layer.values():
        for matrices in room.matrices.values():
            assert matrices.home.buffer is not None, "checked when slots were made"
            yield matrices.home.buffer


def open_lanes(plan: Plan, passes: tuple[PhasePass, PhasePass], devices: Devices, caches: Caches) -> Lanes:
    """A queue or an engine for everything that takes tasks; a pager for every memory with windows."""
    queues = {name: device.open_queue() for name, device in devices.by_name.items()}
    engines = {name: lane.engine for name, lane in devices.lanes.items()}
    host = min((cpu for device in devices.by_name.values() for cpu in device.cpus), default=-1)
    for task in (task for one_pass in passes for task in one_pass.tasks):
        if task.kind in ("decompress", "reshape") and task.resource not in queues:
            queues[task.resource] = devices.by_name[lane_owner(task.resource)].open_queue()
        elif task.kind == "pin" and task.resource + PIN_LANE not in engines:
            engines[task.resource + PIN_LANE] = CopyEngine(UNLIMITED, 0.0, host)
        elif task.kind == "transfer" and task.resource not in engines and task.resource not in queues:
            queues[task.resource] = Queue()
    pagers = {
        memory: Pager(caches.paged[memory], (come, engines[come]), (leave, engines[leave]), plan.workload.context)
        for memory, (come, leave) in page_links(plan).items()
    }
    return Lanes(devices, queues, engines, pagers)
