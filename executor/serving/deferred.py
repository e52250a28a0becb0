"""Requests that go a layer on in an iteration (APEX): who is in the cohort, and what joins a pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from helmsman.executor._kernels import Cohort, Ragged
from helmsman.executor.serving.blocks import Run
from helmsman.executor.serving.rows import Rows
from helmsman.executor.serving.running import Running

Place = Callable[[Running], list[Run]]
"""Makes room for a request's next position, and says where it and all before it are."""
Native = tuple[Cohort, Ragged, Ragged, memoryview, bool, bool]


@dataclass(frozen=True)
class Joining:
    """A cohort's part in a pass: `joint`: rows of sub-batch `batch` and behind them its own; `native`: as passes take
    it. `stays`: they go on there to their tokens."""

    members: list[Running]
    joint: Rows
    native: Native

    @property
    def stays(self) -> bool:
        """In sub-batch 1; those of a deferred pass join sub-batch 0 and leave again."""
        return self.native[-1]

    @property
    def batch(self) -> int:
        """The sub-batch."""
        return 1 if self.stays else 0


class Deferred:
    """The cohort: requests whose token is under way, by row. Those that leave are only left out when it goes on, and
    keep their blocks until nothing is under way."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self._members: list[Running] = []
        self._gone: set[int] = set()

    @property
    def busy(self) -> bool:
        """Whether the host may be at work for it."""
        return not self.cohort.landed

    def has(self, running: Running) -> bool:
        """Whether a token of it is under way."""
        return any(member is running for member in self._members) and id(running) not in self._gone

    def drop(self, running: Running) -> None:
        """Its token under way is not wanted any more; what the host does for it now it does in vain."""
        if self.has(running):
            self._gone.add(id(running))

    def join(self, rows: Rows, asked: Sequence[Running], place: Place) -> Joining | None:
        """What joins a pass of `rows`: the cohort, or if no token is under way a new one of `asked`."""
        kept = [row for row, member in enumerate(self._members) if id(member) not in self._gone]
        if self._members and not kept:
            if self.busy:
                return None
            self.clear()
        members = [self._members[row] for row in kept] or list(asked)
        if not members:
            return None
        apart, behind = Rows(), Rows()
        for member in members:
            tokens, past = member.tokens[member.cached :], member.cached
            apart.add(tokens, past, place(member), None)
            behind.add(tokens, past, None, member.id)
        joint = rows.and_then(behind)
        native = (self.cohort, joint.ragged(), apart.ragged(), np.array(kept, np.int64).data, len(rows) == 0, False)
        return Joining(members, joint, native)

    def stay(self, rows: Rows, apart: Rows, asked: Sequence[Running], place: Place) -> Joining | None:
        """Those of `asked` whose token is under way go on from where they are, behind sub-batch 1's `rows`, which the
        host has as `apart`: what has been done for them is not lost (APEX-26)."""
        members = [running for running in asked if self.has(running)]
        if not members:
            return None
        mine, behind = Rows(), Rows()
        for member in members:
            tokens, past = member.tokens[member.cached :], member.cached
            mine.add(tokens, past, place(member), None)
            behind.add(tokens, past, None, member.id)
        joint, kept = rows.and_then(behind), [self._members.index(member) for member in members]
        places = np.array(kept, np.int64).data
        return Joining(members, joint, (self.cohort, joint.ragged(), apart.followed(mine).ragged(), places, True, True))

    def after(self, joining: Joining) -> list[Running]:
        """Whose tokens the pass made, in which the cohort went on."""
        if joining.stays:
            for member in joining.members:
                self.drop(member)
            return joining.members
        ended = joining.members if self.cohort.layer is None else []
        self._members, self._gone = [] if ended else joining.members, set()
        return ended

    def clear(self) -> None:
        """Forget it all, once nothing is under way."""
        self.cohort.wait()
        self.cohort.reset()
        self._members, self._gone = [], set()
