"""The legs of a pass: stages and the copies between them, each recording when its tasks ran."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer
from helmsman.executor.devices.base import Lane, RunnableStage

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Recorded:
    """When the tasks of one leg ran: `starts` and `ends` are (passes, tasks), seconds of CLOCK_MONOTONIC.

    `tasks`: names as lowering gives them, without the iteration. `moved`: bytes per pass of a copy."""

    tasks: tuple[str, ...]
    starts: Times
    ends: Times
    moved: tuple[int, ...] | None = None


class Leg(Protocol):
    """Something a pass does, one after the other."""

    def reserve(self, passes: int) -> None:
        """Make room to record `passes` passes; forgets what was recorded."""

    def run(self, tokens: int, past: int, row: int) -> None:
        """Advance every sequence by `tokens` on top of `past` and record the times in `row`."""

    def recorded(self, passes: int) -> Recorded:
        """The first `passes` passes."""


@dataclass
class StageLeg:
    """One native call on one device."""

    stage: RunnableStage
    source: Buffer
    target: Buffer
    stamps: Times = field(default_factory=lambda: np.zeros((0, 0)))

    def reserve(self, passes: int) -> None:
        """Make room for `passes` rows of stamps."""
        self.stamps = np.zeros((passes, len(self.stage.ops) + 1))

    def run(self, tokens: int, past: int, row: int) -> None:
        """Run the stage."""
        self.stage.run(self.source, self.target, tokens, past, self.stamps[row])

    def recorded(self, passes: int) -> Recorded:
        """An operation starts when the one before it ends."""
        stamps = self.stamps[:passes]
        return Recorded(tuple(self.stage.ops), stamps[:, :-1], stamps[:, 1:])


@dataclass
class CopyLeg:
    """One copy through one lane: `fixed` bytes, and `per_token` for every token of a sequence."""

    task: str
    lane: Lane
    source: Buffer
    target: Buffer
    fixed: int = 0
    per_token: int = 0
    times: Times = field(default_factory=lambda: np.zeros((0, 2)))
    sizes: list[int] = field(default_factory=list)

    def reserve(self, passes: int) -> None:
        """Make room for `passes` rows of start and end."""
        self.times = np.zeros((passes, 2))
        self.sizes = [0] * passes

    def run(self, tokens: int, past: int, row: int) -> None:
        """Copy and wait: the next stage needs the bytes (HELM-56)."""
        size = self.fixed + self.per_token * tokens
        ticket = self.lane.engine.submit(self.target, 0, self.source, 0, size)
        self.times[row] = self.lane.engine.wait(ticket)
        self.sizes[row] = size

    def recorded(self, passes: int) -> Recorded:
        """One task per pass."""
        times = self.times[:passes]
        return Recorded((self.task,), times[:, :1], times[:, 1:], tuple(self.sizes[:passes]))


def reserve(legs: Sequence[Leg], passes: int) -> None:
    """Make room in all legs."""
    for leg in legs:
        leg.reserve(passes)
