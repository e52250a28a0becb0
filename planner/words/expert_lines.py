"""Where routed experts are, in lines below the strip of a plan's blocks."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from helmsman.planner.words.block_places import BlockPlace, experts_apart
from helmsman.planner.words.expert_places import ExpertPlace
from helmsman.planner.words.plan_words import device_name
from helmsman.schemas.hardware import Hardware

_COLUMNS = 13
"""Columns before what a line says, as in the lines above."""


def expert_lines(hardware: Hardware, steps: Sequence[BlockPlace], prompts: Sequence[BlockPlace]) -> Iterator[str]:
    """Yield a line for steps, and one for prompts where experts are elsewhere in these; none where all experts are with
    their block, which the strip says."""
    if not any(map(experts_apart, (*steps, *prompts))):
        return
    yield f"{'experts':<{_COLUMNS}}{_runs(hardware, steps)}"
    if [place.experts for place in steps] != [place.experts for place in prompts]:
        yield f"{'':<{_COLUMNS}}in prompts {_runs(hardware, prompts)}"


def expert_words(hardware: Hardware, group: ExpertPlace) -> str:
    """Return `80 on the CPU`, `80 streamed to the GPU`."""
    where = "streamed to the" if group.streamed else "on the"
    return f"{group.number} {where} {device_name(hardware, group.device)}"


def _runs(hardware: Hardware, places: Sequence[BlockPlace]) -> str:
    """Return `of blocks 2-48 48 on the GPU, 80 on the CPU; of block 1 128 on the CPU`."""
    lines = []
    for experts, run in groupby(enumerate(place.experts for place in places), key=itemgetter(1)):
        if experts:
            blocks = [number + 1 for number, _ in run]
            named = f"block {blocks[0]}" if len(blocks) == 1 else f"blocks {blocks[0]}-{blocks[-1]}"
            lines.append(f"of {named} {', '.join(expert_words(hardware, group) for group in experts)}")
    return "; ".join(lines)
