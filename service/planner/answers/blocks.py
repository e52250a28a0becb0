"""The blocks of a model in order, by where a plan computes them: neighbours that are alike are one run."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Literal

from helmsman.lowering.placement import KnownPlan, shaped
from helmsman.planner.words.block_places import BlockPlace, block_places, experts_apart
from helmsman.planner.words.expert_places import ExpertPlace
from helmsman.planner.words.plan_words import device_name
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_answer import BlockRun, ExpertGroup

How = Literal["resident", "streamed", "shared", "experts"]

_LETTERS: dict[How, str] = {"streamed": "~", "shared": "x", "experts": "e"}
"""Letters of the strip that helm-plan prints; resident blocks have the first one of their device."""


def block_runs(plan: Plan) -> tuple[tuple[BlockRun, ...], tuple[BlockRun, ...]]:
    """Return the runs of blocks of a plan in decode steps, and in prompts."""
    placed = shaped(plan)
    return tuple(_runs(placed, "decode")), tuple(_runs(placed, "prefill"))


def _runs(placed: KnownPlan, phase: Phase) -> Iterator[BlockRun]:
    numbered = enumerate(block_places(placed, phase))
    for place, run in groupby(numbered, key=itemgetter(1)):
        layers = [layer for layer, _ in run]
        how = _how(place)
        devices = place.beside if how == "experts" else place.devices
        named = " and ".join(dict.fromkeys(device_name(placed.hardware, device) for device in devices))
        letter = _LETTERS.get(how, named[0].upper())
        experts = tuple(_group(placed.hardware, group) for group in place.experts)
        yield BlockRun(letter=letter, place=named, how=how, layers=(layers[0], layers[-1]), experts=experts)


def _group(hardware: Hardware, group: ExpertPlace) -> ExpertGroup:
    how: Literal["resident", "streamed"] = "streamed" if group.streamed else "resident"
    return ExpertGroup(count=group.number, place=device_name(hardware, group.device), how=how)


def _how(place: BlockPlace) -> How:
    if experts_apart(place):
        return "experts"
    return "shared" if len(place.devices) > 1 else "streamed" if place.streamed else "resident"
