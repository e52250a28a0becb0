"""Where the blocks of a model compute: on which devices, and whether weights or caches come to them."""

from typing import NamedTuple

from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.ops import op_extent
from helmsman.lowering.placement import KnownPlan
from helmsman.lowering.rules import homes, kv_homes, places
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.words.expert_places import ExpertPlace, expert_places
from helmsman.scheduler.iteration import Phase


class BlockPlace(NamedTuple):
    """The devices that compute a block, in the machine's order; `streamed`: whether any of its matrices or caches lives
    elsewhere than where it is used. Of a block with routed experts also where these are, and the devices that compute
    what is `beside` them."""

    devices: tuple[str, ...]
    streamed: bool
    experts: tuple[ExpertPlace, ...] = ()
    beside: tuple[str, ...] = ()


def experts_apart(place: BlockPlace) -> bool:
    """Return whether experts are elsewhere than what is beside them, on one device, or come when they are used."""
    return len(place.beside) == 1 and any(group.streamed or (group.device,) != place.beside for group in place.experts)


def block_places(placed: KnownPlan, phase: Phase) -> tuple[BlockPlace, ...]:
    """Return the place of every block in a phase; blocks that no rule tells apart are looked at once."""
    of_first = {first: _block_place(placed, first, phase) for first in set(placed.first_alike)}
    return tuple(of_first[first] for first in placed.first_alike)


def _block_place(placed: KnownPlan, layer: int, phase: Phase) -> BlockPlace:
    model, hardware, cache = placed.model, placed.hardware, cache_of(placed.model, layer)
    devices, streamed = set[str](), False
    if cache is not None:
        devices = {piece.rule.device for piece in places(placed, "scores", layer, phase, cache.heads, "heads")}
        near = {hardware.device(device).memory for device in devices}
        streamed = any(piece.rule.memory not in near for piece in kv_homes(placed, "keys", layer, cache.heads))
    experts = expert_places(placed, layer, phase)
    beside = set(devices)
    for tensor in block_tensors(model, layer):
        if len(tensor.shape) > 1:
            axis, extent = op_extent(model, tensor.op, layer)
            users = {piece.rule.device for piece in places(placed, tensor.op, layer, phase, extent, axis)}
            near = {hardware.device(device).memory for device in users}
            kept = ((piece.rule.memory, *piece.rule.replicas) for piece in homes(placed, tensor))
            streamed = streamed or any(near.isdisjoint(memories) for memories in kept)
            devices |= users
            beside |= set() if tensor.stacked else users
    named, others = (
        tuple(device.name for device in hardware.devices if device.name in chosen) for chosen in (devices, beside)
    )
    return BlockPlace(named, streamed, experts, others if experts else ())
