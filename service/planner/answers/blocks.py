"""The blocks of a model in order, by where a plan computes them: neighbours that are alike are one run."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Literal

from helmsman.lowering.placement import KnownPlan, shaped
from helmsman.lowering.rules import slots_of
from helmsman.planner.words.block_places import BlockPlace, block_places, experts_apart
from helmsman.planner.words.expert_places import ExpertPlace
from helmsman.planner.words.plan_words import device_name
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import ExpertSlots, Plan
from helmsman.schemas.plan_answer import BlockRun, CachedExperts, ExpertGroup

How = Literal["resident", "streamed", "shared", "experts"]

_LETTERS: dict[How, str] = {"streamed": "~", "shared": "x", "experts": "e"}
"""Letters of the strip that helm-plan prints; resident blocks have the first one of their device."""


def block_runs(plan: Plan) -> tuple[tuple[BlockRun, ...], tuple[BlockRun, ...]]:
    """Return the runs of blocks of a plan in decode steps, and in prompts."""
    placed = shaped(plan)
    return tuple(_runs(placed, "decode")), tuple(_runs(placed, "prefill"))


def _runs(placed: KnownPlan, phase: Phase) -> Iterator[BlockRun]:
    places = block_places(placed, phase)
    numbered = ((layer, place, _slots(placed, layer, place)) for layer, place in enumerate(places))
    for (place, slots), run in groupby(numbered, key=itemgetter(1, 2)):
        layers = [layer for layer, _, _ in run]
        how = _how(place)
        devices = place.beside if how == "experts" else place.devices
        named = " and ".join(dict.fromkeys(device_name(placed.hardware, device) for device in devices))
        letter = _LETTERS.get(how, named[0].upper())
        experts = tuple(_group(placed.hardware, group) for group in place.experts)
        cached = None if slots is None else _cached(placed.hardware, slots)
        span = layers[0], layers[-1]
        yield BlockRun(letter=letter, place=named, how=how, layers=span, experts=experts, cached=cached)


def _slots(placed: KnownPlan, layer: int, place: BlockPlace) -> ExpertSlots | None:
    return slots_of(placed.expert_slots, layer) if place.experts else None


def _cached(hardware: Hardware, slots: ExpertSlots) -> CachedExperts:
    near = next(device.name for device in hardware.devices if device.memory == slots.memory)
    return CachedExperts(count=slots.slots, place=device_name(hardware, near), eviction=slots.eviction)


def _group(hardware: Hardware, group: ExpertPlace) -> ExpertGroup:
    how: Literal["resident", "streamed"] = "streamed" if group.streamed else "resident"
    return ExpertGroup(count=group.number, place=device_name(hardware, group.device), how=how)


def _how(place: BlockPlace) -> How:
    if experts_apart(place):
        return "experts"
    return "shared" if len(place.devices) > 1 else "streamed" if place.streamed else "resident"
