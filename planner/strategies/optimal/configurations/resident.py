"""Models that live on several accelerators together: blocks in one range on each, or in turns for several batches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.optimal.configurations.block_ways import on_accelerator
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.streaming.place import Frame


def resident(frame: Frame) -> Iterator[Assignment]:
    """Every block on an accelerator, as evenly as memories allow; nothing where they hold less than the model.

    One batch after the other goes through ranges one at a time, so several go through blocks that take turns: while
    one is on an accelerator, another is on the next. The ends of the model are where that delays no other batch."""
    counts = _divided(frame.model.layers, _capacities(frame))
    if not counts:
        return
    ranges = [on for on, count in enumerate(counts) for _ in range(count)]
    yield _assigned(frame, ranges, (0, len(counts) - 1))
    if frame.workload.batches > 1:
        places = ((number + 0.5) / count for count in counts for number in range(count))
        turns = [on for _, on in sorted(zip(places, ranges, strict=True))]
        for first, last in product(range(len(counts)), repeat=2):
            yield _assigned(frame, turns, (first, last))


def _assigned(frame: Frame, blocks: Sequence[int], ends: tuple[int, int]) -> Assignment:
    way = on_accelerator(frame.model)
    return Assignment(tuple(replace(way, on=on) for on in blocks), *ends, {})


def _capacities(frame: Frame) -> tuple[int, ...]:
    """How many blocks fit each accelerator beside the ends and its buffers."""
    accelerators = frame.roles.accelerators
    one, two = (_used(frame, count) for count in (1, 2))
    return tuple(_more(frame, device.memory, one, two) for device in accelerators)


def _more(frame: Frame, memory: str, one: dict[str, int], two: dict[str, int]) -> int:
    left = frame.roles.hardware.memory(memory).available - one[memory]
    return 1 + left // max(1, two[memory] - one[memory]) if left >= 0 else 0


def _used(frame: Frame, count: int) -> dict[str, int]:
    """Bytes by memory with `count` blocks on every accelerator alone."""
    several = len(frame.roles.accelerators)
    model = frame.model.with_layers(count * several)
    blocks = [on for on in range(several) for _ in range(count)]
    placed = place(replace(frame, model=model), _assigned(frame, blocks, (0, several - 1)))
    return {use.memory: use.used for use in memory_use(placed)}


def _divided(blocks: int, capacities: Sequence[int]) -> tuple[int, ...]:
    """Blocks as evenly as capacities allow; none where they do not."""
    if sum(capacities) < blocks:
        return ()
    counts, left = dict[int, int](), blocks
    for waiting, on in enumerate(sorted(range(len(capacities)), key=lambda index: capacities[index])):
        counts[on] = min(capacities[on], left // (len(capacities) - waiting))
        left -= counts[on]
    return tuple(counts[on] for on in range(len(capacities)))
