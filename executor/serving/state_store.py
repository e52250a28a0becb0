"""The states that requests and prompts have while they are served: their rows on the accelerator and at the host, and
the copies between them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Event
from helmsman.executor.cache.states import RowPairs, StateRows
from helmsman.executor.devices.base import ExecutorDevice
from helmsman.executor.devices.iterations import Lanes
from helmsman.executor.devices.parts import CopyEngine
from helmsman.executor.serving.state_slots import StateMoves, StateSlots


@dataclass(frozen=True)
class StateSeconds:
    """The start and end of what moved states in a pass, f64 (2,) each: over the link either way, and on the
    accelerator before and behind it."""

    out: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    back: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    before: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    behind: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))

    @property
    def copied(self) -> float:
        """Seconds of the accelerator."""
        return float(np.diff(self.before)[0] + np.diff(self.behind)[0])

    @property
    def moved(self) -> tuple[float, float]:
        """Seconds of the link out and back."""
        return float(np.diff(self.out)[0]), float(np.diff(self.back)[0])


@dataclass(frozen=True)
class StateStore:
    """States of `requests` on the accelerator, and behind them `snapshots`; `host`: of those that make way, None where
    none does."""

    device: ExecutorDevice
    rows: StateRows
    requests: int
    snapshots: int
    host: StateRows | None = None

    def slots(self) -> StateSlots:
        """Return all rows, free."""
        return StateSlots(self.requests, self.snapshots, 0 if self.host is None else self.host.rows)

    def before(self, lanes: Lanes, moves: StateMoves, seconds: StateSeconds) -> None:
        """Submit what comes before a pass: who leaves makes room for who comes back, begins, or goes on from a
        snapshot; the accelerator waits for all of them."""
        queue, _, to_host, to_device, *_ = lanes
        moved = list[Event]()
        if moves.out:
            moved.append(_move(to_host, self.host, self.rows, moves.out, moved, seconds.out))
        if moves.back:
            moved.append(_move(to_device, self.rows, self.host, moves.back, moved, seconds.back))
        if moved or moves.restored:
            pieces = self.rows.pieces(moves.restored, self.rows).data
            self.device.copy_pieces(queue, [(self.rows.buffer, pieces)], moved, times=seconds.before.data)

    def behind(self, lanes: Lanes, moves: StateMoves, seconds: StateSeconds) -> Event | None:
        """Submit what comes behind a pass, and return what happens when it is done; None where nothing does."""
        if not moves.kept:
            return None
        done, pieces = Event(), self.rows.pieces(moves.kept, self.rows).data
        self.device.copy_pieces(lanes[0], [(self.rows.buffer, pieces)], (), done, seconds.behind.data)
        return done


def _move(
    engine: CopyEngine | None,
    target: StateRows | None,
    source: StateRows | None,
    pairs: RowPairs,
    wait: list[Event],
    times: NDArray[np.float64],
) -> Event:
    assert engine is not None and target is not None and source is not None, "states that move need a host and links"
    done, pieces = Event(), target.pieces(pairs, source)
    engine.submit_pieces(target.buffer, 0, source.buffer, 0, pieces.data, list(wait), done, times.data)
    return done
