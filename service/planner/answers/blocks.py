"""The blocks of a model in order, by where a plan computes them: neighbours that are alike are one run."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Literal

from helmsman.lowering.placement import KnownPlan, known
from helmsman.planner.words.block_places import BlockPlace, block_places
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
    numbered = enumerate(block_places(placed, phase))
    for place, run in groupby(numbered, key=itemgetter(1)):
        layers = [layer for layer, _ in run]
        named = " and ".join(dict.fromkeys(device_name(placed.hardware, device) for device in place.devices))
        how = _how(place)
        letter = _LETTERS.get(how, named[0].upper())
        yield BlockRun(letter=letter, place=named, how=how, layers=(layers[0], layers[-1]))


def _how(place: BlockPlace) -> How:
    return "shared" if len(place.devices) > 1 else "streamed" if place.streamed else "resident"
