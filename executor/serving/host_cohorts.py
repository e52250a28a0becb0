"""Requests that go a layer on in an iteration (APEX): who is in which cohort, and what joins a pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from helmsman.executor.devices.iterations import Cohort, Joining
from helmsman.executor.serving.active_request import ActiveRequest
from helmsman.executor.serving.blocks import Run
from helmsman.executor.serving.rows import Rows

Place = Callable[[ActiveRequest], list[Run]]
"""Makes room for a request's next position, and says where it and all before it are."""


@dataclass
class Members:
    """A cohort: requests whose token is under way, by row. Those that leave are only left out when it goes on, and keep
    their blocks until the host is not at work for it. `begun`: grows with cohorts."""

    cohort: Cohort
    rows: list[ActiveRequest] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    begun: int = 0

    @property
    def kept(self) -> list[int]:
        """The rows of those who have not left."""
        return [row for row, member in enumerate(self.rows) if id(member) not in self.gone]

    def has(self, running: ActiveRequest) -> bool:
        """Whether a token of it is under way."""
        return any(member is running for member in self.rows) and id(running) not in self.gone

    def clear(self) -> None:
        """Forget it all, once nothing is under way."""
        self.cohort.wait()
        self.cohort.reset()
        self.rows, self.gone = [], set()


@dataclass(frozen=True)
class CohortPart:
    """A cohort's part in a pass: `joint`: rows of sub-batch `batch` and behind them its own; `native`: as passes take
    it. `stays`: they go on there to their tokens."""

    place: Members
    members: list[ActiveRequest]
    joint: Rows
    native: Joining

    @property
    def stays(self) -> bool:
        """In sub-batch 1; those of a deferred pass join sub-batch 0 and leave again."""
        return self.native[-1]

    @property
    def batch(self) -> int:
        """The sub-batch."""
        return 1 if self.stays else 0


class HostCohorts:
    """The cohorts, each of which has a token under way or none."""

    def __init__(self, cohorts: Sequence[Cohort]) -> None:
        self._places = [Members(cohort) for cohort in cohorts]
        self._begun = 0

    def at_work(self, running: ActiveRequest) -> Cohort | None:
        """The cohort with a token of it, if the host may be at work for it."""
        return next((place.cohort for place in self._places if place.has(running) and not place.cohort.landed), None)

    def has(self, running: ActiveRequest) -> bool:
        """Whether a token of it is under way."""
        return any(place.has(running) for place in self._places)

    def drop(self, running: ActiveRequest) -> None:
        """Its token under way is not wanted any more; what the host does for it now it does in vain."""
        for place in self._places:
            if place.has(running):
                place.gone.add(id(running))

    def join(self, rows: Rows, requests: Sequence[ActiveRequest], place: Place) -> list[CohortPart]:
        """Return what joins a pass of `rows`, by layer: cohorts under way, of several at a layer the first to have
        begun, and a new one of those `requests` that are in none, if another has a place."""
        for slot in self._places:
            if slot.rows and not slot.kept and slot.cohort.landed:
                slot.clear()
        joinings: dict[int, CohortPart] = {}
        for slot in sorted(self._places, key=lambda slot: slot.begun):
            if slot.kept and slot.cohort.layer not in joinings and slot.cohort.layer is not None:
                members = [slot.rows[row] for row in slot.kept]
                joinings[slot.cohort.layer] = _joining(slot, members, slot.kept, rows, place)
        free = next((slot for slot in self._places if not slot.rows), None)
        fresh = [running for running in requests if not self.has(running)]
        if free is None or not fresh:
            return [joinings[layer] for layer in sorted(joinings)]
        self._begun += 1
        free.begun = self._begun
        return [_joining(free, fresh, [], rows, place), *(joinings[layer] for layer in sorted(joinings))]

    def stay(self, rows: Rows, apart: Rows, requests: Sequence[ActiveRequest], place: Place) -> list[CohortPart]:
        """Let those of `requests` whose token is under way go on in this pass, and return their parts of it by layer.

        Their rows follow sub-batch 1's `rows`, which the host has as `apart`: nothing done is lost (APEX-26)."""
        result: list[CohortPart] = []
        for slot in sorted(self._places, key=lambda slot: -1 if slot.cohort.layer is None else slot.cohort.layer):
            members = [running for running in requests if slot.has(running)]
            if not members:
                continue
            mine, behind = _apart(members, place), _behind(members)
            rows, apart = rows.and_then(behind), apart.followed(mine)
            kept = np.array([slot.rows.index(member) for member in members], np.int64).data
            result.append(
                CohortPart(slot, members, rows, (slot.cohort, rows.ragged(), apart.ragged(), kept, True, True))
            )
        return result

    def after(self, joining: CohortPart) -> list[ActiveRequest]:
        """Whose tokens the pass made, in which the cohort went on."""
        place = joining.place
        if joining.stays:
            place.gone.update(id(member) for member in joining.members)
            return joining.members
        ended = joining.members if place.cohort.layer is None else []
        place.rows, place.gone = [] if ended else joining.members, set()
        return ended

    def wait(self) -> None:
        """Until the host is at work for none."""
        for place in self._places:
            place.cohort.wait()

    def clear(self) -> None:
        """Forget it all, once nothing is under way."""
        for place in self._places:
            place.clear()


def _joining(place: Members, members: list[ActiveRequest], kept: list[int], rows: Rows, room: Place) -> CohortPart:
    """`members`, which are the rows `kept` of those under way (none for a new token), behind sub-batch 0's `rows`."""
    joint, apart = rows.and_then(_behind(members)), _apart(members, room)
    places = np.array(kept, np.int64).data
    return CohortPart(place, members, joint, (place.cohort, joint.ragged(), apart.ragged(), places, not rows, False))


def _behind(members: Sequence[ActiveRequest]) -> Rows:
    """Their rows on the accelerator, which has nothing of them cached."""
    rows = Rows()
    for member in members:
        rows.add(member.tokens[member.cached :], member.cached, None, member.id)
    return rows


def _apart(members: Sequence[ActiveRequest], place: Place) -> Rows:
    """Their rows as the host has them."""
    rows = Rows()
    for member in members:
        rows.add(member.tokens[member.cached :], member.cached, place(member), None)
    return rows
