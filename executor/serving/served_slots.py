"""Experts that are not all on the accelerator while requests are served: looked up for the rows of all requests of a
pass together.

What is in no slot is fetched, in rounds of as many as slots hold, or computed by the host, or divided between both.
Sub-batches of a pass look up one after the other, and slots keep what both have chosen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from helmsman.executor._kernels import Event
from helmsman.executor.devices.iterations import ExpertLookup
from helmsman.executor.devices.parts import Stage
from helmsman.executor.devices.stage_turns import StageValues
from helmsman.executor.passes.phase_pass import SlotMode
from helmsman.executor.routing.slots import NO_EXPERTS, LayerSlots, PassCounts
from helmsman.executor.serving.away_experts import AwayExperts, CrossedSeconds
from helmsman.executor.stages.router_values import RouterValues
from helmsman.schemas.expert_cache import ExpertCacheCounts

KEPT_PASSES = 4096
"""Latest passes whose counts are kept."""


@dataclass
class ServedSlots:
    """The slots of a plan's layers; `modes`: what happens to experts that are in none; `stages`: of the sub-batches,
    whose first block is the model's, with what the host reads of them; `away`: the host's part, None where it computes
    no experts."""

    layers: Mapping[int, LayerSlots]
    modes: Mapping[int, SlotMode]
    stages: Sequence[tuple[Stage, StageValues]]
    away: AwayExperts | None = None
    _rounds: dict[int, Iterator[None]] = field(default_factory=dict)
    _begun: set[int] = field(default_factory=set)

    @property
    def lookups(self) -> list[ExpertLookup]:
        """Return who looks up the experts of a block, by block."""
        blocks = self.layers.keys() | (frozenset() if self.away is None else self.away.layers)
        return [
            (layer, partial(self._look_up, layer, self._routers(layer)), self._joined(layer))
            for layer in sorted(blocks)
        ]

    def _joined(self, layer: int) -> Event | None:
        """Return what says that the host's sum of a block has come; None where it computes none."""
        return None if self.away is None or layer not in self.away.layers else self.away.joined

    @property
    def counts(self) -> tuple[ExpertCacheCounts, ...]:
        """Return what the slots of each layer did in the latest passes."""
        return tuple(slots.counted(layer) for layer, slots in self.layers.items())

    def begin(self) -> None:
        """A pass begins."""
        self._begun.clear()
        if self.away is not None:
            self.away.begin()

    def end(self) -> PassCounts:
        """A pass is done: what it has chosen counts as used last. Return what the slots of all layers did."""
        for layer in self._begun:
            slots = self.layers[layer]
            slots.end(self.modes[layer])
            slots.table.start()
            del slots.counts[:-KEPT_PASSES]
        counted = (self.layers[layer].counts[-1] for layer in self._begun)
        return reduce(PassCounts.plus, counted, NO_EXPERTS)

    def seconds(self) -> float:
        """Return for how long experts were on their way in the latest pass."""
        return sum(self.layers[layer].table.seconds() for layer in self._begun)

    def crossed(self) -> CrossedSeconds:
        """Return what messages and sums of the latest pass took. Raises what the host raised."""
        return CrossedSeconds(0.0, 0.0) if self.away is None else self.away.end()

    def reset(self) -> None:
        """Empty all slots, whatever has happened."""
        self._rounds.clear()
        self._begun.clear()
        if self.away is not None:
            self.away.reset()
        for slots in self.layers.values():
            slots.restart()

    def _routers(self, layer: int) -> tuple[RouterValues, ...]:
        """Return what the router of a layer leaves, of each sub-batch."""
        of_stages = (RouterValues.of(values, stage, layer) for stage, values in self.stages)
        return tuple(router for router in of_stages if router is not None)

    def _look_up(self, layer: int, routers: Sequence[RouterValues], batch: int, rows: int) -> bool:
        """Let the stage of a sub-batch compute the next experts of its rows, and the host its part of them; whether
        there will be more."""
        if self.modes.get(layer) == "fetched":
            return self._next_round(layer, routers[batch], rows)
        assert self.away is not None, "experts that the host computes"
        if layer in self.layers:
            router, slots, first = routers[batch], self.layers[layer], self._begins(layer)
            ids, messages = router.chosen(rows), router.messages(rows)
            sent = router.sent(messages)
            if self.modes[layer] == "divided":
                slots.divided(ids, sent, first)
            else:
                slots.beside(ids, sent, first)
            router.tell(messages)
        self.away.send(layer, batch, rows)
        if layer in self.layers:
            self.layers[layer].table.start()
        return False

    def _begins(self, layer: int) -> bool:
        """Whether rows are the first of a pass whose experts are looked up in a layer."""
        begins = layer not in self._begun
        self._begun.add(layer)
        return begins

    def _next_round(self, layer: int, router: RouterValues, rows: int) -> bool:
        """Let the experts of a round come; whether there will be more."""
        if layer not in self._rounds:
            first = self._begins(layer)
            self._rounds[layer] = self.layers[layer].rounds(router.chosen(rows), first)
        table = self.layers[layer].table
        for _ in self._rounds[layer]:
            table.start()
            return True
        table.start()
        del self._rounds[layer]
        return False
