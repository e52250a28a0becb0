"""Rows of states: which of the accelerator's a request has, which are snapshots of prompts, which of the host's a
request has that waits there."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from helmsman.executor.serving.active_request import ActiveRequest
from helmsman.scheduler.decision import Home
from helmsman.schemas.errors import InfeasibleError


@dataclass(frozen=True)
class StateMoves:
    """The copies of states in a pass, as (target row, source row): `out`, `back`: to the host and from there;
    `restored`: from snapshots, before anything is computed; `kept`: to snapshots, once everything has been."""

    out: list[tuple[int, int]] = field(default_factory=list)
    back: list[tuple[int, int]] = field(default_factory=list)
    restored: list[tuple[int, int]] = field(default_factory=list)
    kept: list[tuple[int, int]] = field(default_factory=list)


class StateSlots:
    """Rows of the accelerator's states, `requests` for those that run and behind them `snapshots`, and `at_host` rows
    of the host's. `moves`: of the pass that is being made up.

    A state begins anew with a request's first token, so that no row needs clearing. Raises InfeasibleError where all
    rows are taken."""

    def __init__(self, requests: int, snapshots: int, at_host: int) -> None:
        self.moves = StateMoves()
        self._counts: dict[Home, int] = {"gpu": requests, "cpu": at_host}
        self._free = {home: list(range(count))[::-1] for home, count in self._counts.items()}
        self._spare = list(range(requests, requests + snapshots))[::-1]
        self._snapshots: dict[int, int] = {}

    def begin(self) -> None:
        """A pass is made up."""
        self.moves = StateMoves()

    def of(self, running: ActiveRequest) -> int:
        """Return the row of a request on the accelerator."""
        if running.slot is None:
            running.slot = self._take("gpu")
        return running.slot

    def drop(self, running: ActiveRequest) -> None:
        """A request's state is wanted no longer."""
        if running.slot is not None:
            self._free[running.home].append(running.slot)
            running.slot = None

    def move(self, running: ActiveRequest, home: Home) -> int:
        """Return the row to which a request's state goes, at the other home."""
        assert running.slot is not None, "who is cached has a state"
        row = self._take(home)
        (self.moves.out if home == "cpu" else self.moves.back).append((row, running.slot))
        return row

    def restore(self, running: ActiveRequest, block_hash: int) -> None:
        """A request that begins goes on from the snapshot behind a block."""
        self.moves.restored.append((self.of(running), self._snapshots[block_hash]))

    def keep(self, running: ActiveRequest, block_hash: int) -> None:
        """A request's state after this pass becomes the snapshot behind a block."""
        if not self._spare or block_hash in self._snapshots:
            raise _taken("more snapshots than have room")
        self._snapshots[block_hash] = self._spare.pop()
        self.moves.kept.append((self._snapshots[block_hash], self.of(running)))

    def forget(self, hashes: Iterable[int]) -> None:
        """Snapshots behind these blocks, where there are any, make room."""
        self._spare += [self._snapshots.pop(block_hash) for block_hash in hashes if block_hash in self._snapshots]

    def clear(self) -> None:
        """Forget all snapshots."""
        self.forget(list(self._snapshots))

    def _take(self, home: Home) -> int:
        if not self._free[home]:
            raise _taken("more requests than states have room")
        return self._free[home].pop()

    def check_integrity(self, all_running: Iterable[ActiveRequest]) -> None:
        """Raise AssertionError unless every row has one owner or is free, and a request a row once anything of it is
        cached."""
        held: dict[Home, list[int]] = {home: list(free) for home, free in self._free.items()}
        for running in all_running:
            assert (running.slot is not None) == (running.cached > 0), "states of what is cached"
            if running.slot is not None:
                held[running.home].append(running.slot)
        for home, rows in held.items():
            assert sorted(rows) == list(range(self._counts[home])), f"every row of {home} has one owner"
        first, snapshots = self._counts["gpu"], [*self._snapshots.values(), *self._spare]
        assert sorted(snapshots) == list(range(first, first + len(snapshots))), "every snapshot has a row"


def _taken(message: str) -> InfeasibleError:
    return InfeasibleError(message, field="decision", remedy="let the scheduler's limits be those of the engine")
