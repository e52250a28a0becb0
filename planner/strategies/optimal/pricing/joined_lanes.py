"""The lanes of all accelerators, side by side: one column each, whoever uses them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helmsman.planner.strategies.optimal.pricing.blocks import Blocks
from helmsman.planner.strategies.optimal.pricing.busy_lanes import BusyLane
from helmsman.planner.strategies.optimal.pricing.lane_rotation import Lane
from helmsman.planner.strategies.optimal.pricing.lowered_parts import TURNING
from helmsman.planner.strategies.optimal.program.ways import Numbers
from helmsman.scheduler.iteration import Phase


@dataclass(frozen=True, eq=False)
class JoinedLanes:
    """Those of `members`, the blocks of one accelerator after the other, in some `phases`."""

    members: tuple[Blocks, ...]
    phases: tuple[Phase, ...]

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """In order of columns."""
        lanes = dict.fromkeys(lane for named in self.named for lane in named)
        return tuple(lane for phase in self.phases for lane in lanes if lane[0] == phase)

    @cached_property
    def named(self) -> tuple[tuple[Lane, ...], ...]:
        """By accelerator, its own."""
        return tuple(blocks.lanes for blocks in self.members)

    def spread(self, on: int, rows: Sequence[int], lanes: Numbers) -> Numbers:
        """Seconds (ways, lanes) of `rows` of an accelerator's ways that ask its own for `lanes`. Beside a busy link of
        another one, a way takes at least its seconds as if it lost all that any operation can lose."""
        named = self.named[on]
        result = np.zeros((len(lanes), len(self.lanes)))
        for lane, (beside, chain) in self._far[on].items():
            column = named.index((lane[0], TURNING[1]))
            result[:, self.lanes.index(lane)] = np.maximum(chain[rows], beside.idle * lanes[:, column])
        result[:, [self.lanes.index(lane) for lane in named]] = lanes
        return result

    @cached_property
    def _far(self) -> tuple[Mapping[Lane, tuple[BusyLane, Numbers]], ...]:
        """By accelerator, and busy link or another lane of another one, the chains of its ways beside that."""
        besides = {(phase, name): beside for blocks in self.members for phase, name, beside in _besides(blocks)}
        return tuple(
            {lane: (beside, blocks.beside(lane[0], beside)) for lane, beside in besides.items() if lane not in named}
            for blocks, named in zip(self.members, self.named, strict=True)
        )


def _besides(blocks: Blocks) -> Iterator[tuple[Phase, str, BusyLane]]:
    """The chains beside a busy link, or another lane, of one accelerator."""
    for phase in blocks.phases:
        yield from ((phase, name, beside) for name, beside in blocks.bases[phase].beside.items())
