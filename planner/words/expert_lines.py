"""Where routed experts are: in lines below the strip of a plan's blocks, and in one line."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from helmsman.lowering.placement import Placed, shaped
from helmsman.lowering.routing import has_experts
from helmsman.planner.words.block_places import BlockPlace, experts_apart
from helmsman.planner.words.expert_places import ExpertPlace, expert_places
from helmsman.planner.words.plan_words import device_name
from helmsman.planner.words.routing_words import slot_words
from helmsman.schemas.hardware import Hardware

_COLUMNS = 13
"""Columns before what a line says, as in the lines above."""


def expert_lines(hardware: Hardware, steps: Sequence[BlockPlace], prompts: Sequence[BlockPlace]) -> Iterator[str]:
    """Yield a line for steps, and one for prompts where experts are elsewhere in these; none where all experts are with
    their block, which the strip says."""
    if not any(map(experts_apart, (*steps, *prompts))):
        return
    of_steps, of_prompts = ([place.experts for place in places] for places in (steps, prompts))
    yield f"{'experts':<{_COLUMNS}}{_runs(hardware, of_steps)}"
    if of_steps != of_prompts:
        yield f"{'':<{_COLUMNS}}in prompts {_runs(hardware, of_prompts)}"


def experts_in_short(plan: Placed) -> str | None:
    """Return where routed experts are in decode steps, and which of them are cached: `of blocks 1-13 128 on the CPU; of
    blocks 14-48 128 on the GPU`; None of a model without any."""
    if not has_experts(plan.model):
        return None
    placed = shaped(plan)
    of_first = {first: expert_places(placed, first, "decode") for first in set(placed.first_alike)}
    return "; ".join([_runs(plan.hardware, [of_first[first] for first in placed.first_alike]), *slot_words(plan)])


def expert_words(hardware: Hardware, group: ExpertPlace) -> str:
    """Return `80 on the CPU`, `80 streamed to the GPU`."""
    where = "streamed to the" if group.streamed else "on the"
    return f"{group.number} {where} {device_name(hardware, group.device)}"


def _runs(hardware: Hardware, places: Sequence[tuple[ExpertPlace, ...]]) -> str:
    """Return `of blocks 2-48 48 on the GPU, 80 on the CPU; of block 1 128 on the CPU`."""
    lines = []
    for experts, run in groupby(enumerate(places), key=itemgetter(1)):
        if experts:
            blocks = [number + 1 for number, _ in run]
            named = f"block {blocks[0]}" if len(blocks) == 1 else f"blocks {blocks[0]}-{blocks[-1]}"
            lines.append(f"of {named} {', '.join(expert_words(hardware, group) for group in experts)}")
    return "; ".join(lines)
