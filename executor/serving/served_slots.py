"""Experts in slots while requests are served: looked up for the rows of all requests of a pass together.

What is not there is fetched, in rounds of as many as slots hold. Sub-batches of a pass look up one after the other, and
slots keep what both have chosen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from helmsman.executor.devices.iterations import ExpertLookup
from helmsman.executor.devices.parts import Stage
from helmsman.executor.passes.phase_pass import PhasePass
from helmsman.executor.routing.slots import NO_EXPERTS, LayerSlots, PassCounts
from helmsman.executor.routing.value_rows import ValueRows
from helmsman.executor.stages.expert_operations import CHOICE
from helmsman.schemas.errors import UsageError
from helmsman.schemas.expert_cache import ExpertCacheCounts

KEPT_PASSES = 4096
"""Latest passes whose counts are kept."""


@dataclass
class ServedSlots:
    """The slots of a plan's layers; `stages`: of the sub-batches, whose first block is the model's."""

    layers: Mapping[int, LayerSlots]
    stages: Sequence[Stage]
    _rounds: dict[int, Iterator[None]] = field(default_factory=dict)
    _begun: set[int] = field(default_factory=set)

    @property
    def lookups(self) -> list[ExpertLookup]:
        """Return who looks up the experts of a block, by block."""
        return [(layer, partial(self._look_up, layer, self._choices(layer))) for layer in sorted(self.layers)]

    @property
    def counts(self) -> tuple[ExpertCacheCounts, ...]:
        """Return what the slots of each layer did in the latest passes."""
        return tuple(slots.counted(layer) for layer, slots in self.layers.items())

    def begin(self) -> None:
        """A pass begins."""
        self._begun.clear()

    def end(self) -> PassCounts:
        """A pass is done: what it has chosen counts as used last. Return what the slots of all layers did."""
        for layer in self._begun:
            slots = self.layers[layer]
            slots.end_rounds()
            del slots.counts[:-KEPT_PASSES]
        counted = (self.layers[layer].counts[-1] for layer in self._begun)
        return reduce(PassCounts.plus, counted, NO_EXPERTS)

    def seconds(self) -> float:
        """Return for how long experts were on their way in the latest pass."""
        return sum(self.layers[layer].table.seconds() for layer in self._begun)

    def reset(self) -> None:
        """Empty all slots, whatever has happened."""
        self._rounds.clear()
        self._begun.clear()
        for slots in self.layers.values():
            slots.restart()

    def _choices(self, layer: int) -> tuple[ValueRows, ...]:
        """Return where the router of a layer leaves what it chooses, of each sub-batch."""
        found = (ValueRows.of(stage, stage.workspace, CHOICE, layer) for stage in self.stages)
        return tuple(rows for rows in found if rows is not None)

    def _look_up(self, layer: int, choices: Sequence[ValueRows], batch: int, rows: int) -> bool:
        """Let the stage of a sub-batch compute the next experts of its rows; whether there will be more."""
        if layer not in self._rounds:
            first = layer not in self._begun
            self._begun.add(layer)
            self._rounds[layer] = self.layers[layer].rounds(choices[batch].head(rows), first, last=False)
        for _ in self._rounds[layer]:
            return True
        del self._rounds[layer]
        return False


def check_fetched(phase_pass: PhasePass) -> None:
    """Raise UsageError for experts that another device computes where they are in no slot."""
    other = next((layer for layer, mode in phase_pass.slotted.items() if mode != "fetched"), None)
    if other is not None:
        raise UsageError(
            f"experts of block {other} that are in no slot would be computed on the host while requests are served",
            field="expert_slots.misses",
            value=phase_pass.slotted[other],
            remedy="plan with `strategy` freetoken and its option miss_mode=offload, which fetches them",
        )
