"""How blocks of any accelerators follow each other in order: by the paces of their ways, and by what crosses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from helmsman.lowering.streams import MemoryRoutes as Routes
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay
from helmsman.planner.strategies.optimal.configurations.rules import Ends
from helmsman.planner.strategies.optimal.order.pace import HOST, Pace, Track
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks
from helmsman.planner.strategies.optimal.pricing.lowered_parts import CHAIN
from helmsman.planner.strategies.optimal.program.ways import Numbers
from helmsman.planner.strategies.optimal.search.turn_stages import TurnStages
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.formats import size_of


@dataclass(frozen=True, eq=False)
class Tracks:
    """Of all `blocks` of a question."""

    blocks: AllBlocks

    def track(self, ends: Ends, weights: Mapping[Phase, float]) -> Track:
        """How blocks follow each other in the phase of most weight, the last one of those, and in the others."""
        *others, own = sorted(filter(weights.get, self.blocks.phases), key=lambda phase: weights[phase])
        worth = [(weights[phase] / weights[own], self._track(ends, phase)) for phase in others]
        return replace(self._track(ends, own), others=tuple(worth))

    def smooth(self, most: float, phase: Phase) -> NDArray[np.bool_]:
        """Whether a way's link works for at most so many times the seconds of the operations beside it (ways)."""
        return np.array([pace.link <= most * pace.beside for pace in self._paces[phase]])

    @cached_property
    def waiting(self) -> Numbers:
        """Seconds (ways, lanes) for which, if all blocks had the same way, chains would wait for what comes, or a link
        for the operations beside it."""
        blocks = self.blocks
        result = np.zeros((len(blocks.ways), len(blocks.lanes)))
        carriers = [set(one.carriers) for one in blocks.members]
        free = {phase: np.array([pace.beside - pace.link for pace in paces]) for phase, paces in self._paces.items()}
        for column, lane in enumerate(blocks.lanes):
            busy = free[lane[0]]
            if lane[1].startswith(CHAIN):
                result[:, column] = np.maximum(0.0, -busy)
            elif any(lane in carrier for carrier in carriers):
                own = np.array([lane in carriers[on] for on, _ in blocks.rows])
                result[:, column] = np.where(own, np.maximum(0.0, busy), 0.0)
        return result

    def _track(self, ends: Ends, phase: Phase) -> Track:
        first, last = (HOST if side == "host" else 0 if side == "accelerator" else side for side in ends)
        turns = None
        if self.blocks.frame.workload.batches > 1:
            turns = partial(self._stages[phase].seconds, ends)
        return Track(self._paces[phase], self._crossings, (first, last), turns=turns)

    @cached_property
    def _stages(self) -> Mapping[Phase, TurnStages]:
        return {phase: TurnStages(self.blocks, phase) for phase in self.blocks.phases}

    @cached_property
    def _paces(self) -> Mapping[Phase, tuple[Pace, ...]]:
        return {phase: tuple(self._paced(phase)) for phase in self.blocks.phases}

    def _paced(self, phase: Phase) -> Iterator[Pace]:
        paces = [one.following[phase].paces for one in self.blocks.members]
        for way, (on, row) in zip(self.blocks.ways, self.blocks.rows, strict=True):
            yield _on(paces[on][row], way, phase)

    @cached_property
    def _crossings(self) -> Mapping[tuple[int, int], float]:
        """Seconds of hidden states from one device's memory to another's."""
        frame, iteration = self.blocks.frame, self.blocks.members[0].iteration(self.blocks.phases[-1])
        size = size_of(iteration.batch * iteration.tokens * frame.model.hidden, frame.roles.activations)
        devices = {HOST: frame.roles.host, **dict(enumerate(frame.roles.accelerators))}
        routes, crossings = Routes(frame.roles.hardware), {}
        for (a, source), (b, target) in product(devices.items(), repeat=2):
            hops = () if source.memory == target.memory else routes.hops(source.memory, target.memory, size, "pinned")
            crossings[a, b] = sum(hop.link.latency.value + size / hop.link.bandwidth.value for hop in hops)
        return crossings


def _on(pace: Pace, way: BlockWay, phase: Phase) -> Pace:
    """A pace with where its block begins and ends."""
    parts = way.parts_in(phase)
    first, last = (HOST if parts[place] == "host" else way.on for place in (0, -1))
    return pace._replace(on=HOST if way.alone else way.on, first=first, last=last)
