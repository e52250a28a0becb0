"""The blocks of a model in order, by where a plan computes them: neighbours that are alike are one run."""

from collections.abc import Iterator
from itertools import groupby
from typing import Literal

from helmsman.lowering.ops import op_extent
from helmsman.lowering.placement import KnownPlan, known
from helmsman.lowering.rules import homes, kv_homes, places
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.words.plan_words import device_name
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_answer import BlockRun

How = Literal["resident", "streamed", "shared"]

_LETTERS: dict[How, str] = {"streamed": "~", "shared": "x"}
"""Letters of the strip that helm-plan prints; resident blocks have the first one of their device."""


def block_runs(plan: Plan) -> tuple[tuple[BlockRun, ...], tuple[BlockRun, ...]]:
    """Return the runs of blocks of a plan in decode steps, and in prompts."""
    placed = known(plan)
    return tuple(_runs(placed, "decode")), tuple(_runs(placed, "prefill"))


def _runs(placed: KnownPlan, phase: Phase) -> Iterator[BlockRun]:
    places_of = {first: _place(placed, first, phase) for first in set(placed.first_alike)}
    where = ((places_of[first], layer) for layer, first in enumerate(placed.first_alike))
    for (place, how), run in groupby(where, key=lambda pair: pair[0]):
        layers = [layer for _, layer in run]
        letter = _LETTERS.get(how, place[0].upper())
        yield BlockRun(letter=letter, place=place, how=how, layers=(layers[0], layers[-1]))


def _place(placed: KnownPlan, layer: int, phase: Phase) -> tuple[str, How]:
    """Return the devices that compute a block, in words, and how it comes to them."""
    model, hardware = placed.model, placed.hardware
    heads = places(placed, "scores", layer, phase, model.kv_heads, "heads")
    devices = {piece.rule.device for piece in heads}
    near = {hardware.device(device).memory for device in devices}
    streamed = any(piece.rule.memory not in near for piece in kv_homes(placed, "keys", layer, model.kv_heads))
    for tensor in block_tensors(model, layer):
        if len(tensor.shape) < 2:
            continue
        axis, extent = op_extent(model, tensor.op)
        users = {piece.rule.device for piece in places(placed, tensor.op, layer, phase, extent, axis)}
        near = {hardware.device(device).memory for device in users}
        kept = ((piece.rule.memory, *piece.rule.replicas) for piece in homes(placed, tensor))
        streamed = streamed or any(near.isdisjoint(memories) for memories in kept)
        devices |= users
    named = [device_name(hardware, device.name) for device in hardware.devices if device.name in devices]
    place = " and ".join(dict.fromkeys(named))
    return place, "shared" if len(devices) > 1 else "streamed" if streamed else "resident"
