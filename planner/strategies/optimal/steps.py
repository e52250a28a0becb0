"""Blocks step by step: a pass of one batch in which every group of operations waits for what comes for it alone.

More exact than a `Pace`, which is enough to compare compositions: what operations lose beside a busy link differs from
group to group, and a link that rests because no buffer is free does so beside some of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from helmsman.planner.strategies.optimal.flow import crossed, links_room
from helmsman.planner.strategies.optimal.pace import Track
from helmsman.planner.strategies.optimal.ways import Chosen, Numbers

_ALIKE = 0.08
"""Steps that differ in nothing by more are one."""

_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of blocks (ways, steps): `seconds` while nothing comes, the share of their speed that operations lose
    while something does (`loss`), the share of its own that the link keeps (`drag`), and the seconds of the link after
    which what they need is there (`needs`), 0 where they need nothing. `link` (ways): seconds of all that comes; a
    buffer is free after the last step that needs any."""

    seconds: Numbers
    loss: Numbers
    drag: Numbers
    needs: Numbers
    link: Numbers

    def only(self, rows: Chosen) -> "Steps":
        """Some ways."""
        return Steps(self.seconds[rows], self.loss[rows], self.drag[rows], self.needs[rows], self.link[rows])

    def lasting(self, chains: Numbers) -> "Steps":
        """The same, as long as `chains` (ways) are said to be alone: what they lose stays."""
        lost = self.seconds * (1 / (1 - self.loss) - 1)
        seconds = self.seconds * (chains / np.maximum(self.seconds.sum(axis=1), _TINY))[:, None]
        loss = np.where(seconds > 0, lost / np.maximum(seconds + lost, _TINY), 0.0)
        return Steps(seconds, loss, self.drag, self.needs, self.link)

    def merged(self) -> "Steps":
        """With steps together that are alike, between those that need something."""
        rows = [_merged(row) for row in zip(*(of.tolist() for of in self._figures), strict=True)]
        most = max(map(len, rows))
        padded = np.array([[*row, *(_NONE,) * (most - len(row))] for row in rows])
        seconds, loss, drag, needs = (padded[:, :, place] for place in range(len(_NONE)))
        return Steps(seconds, loss, drag, needs, self.link)

    @property
    def _figures(self) -> tuple[Numbers, ...]:
        return self.seconds, self.loss, self.drag, self.needs

    def passes(self, orders: Chosen, rows: Chosen, track: Track, buffers: int) -> Numbers:
        """Seconds of passes through many `orders` (orders, blocks) of these ways, which are `rows` of a track, and of
        what crosses; O(blocks x steps) operations, each for all of them."""
        link, before = self.link[orders.T], track.figures[rows]
        first, last = (before[:, column][orders.T].astype(np.intp) for column in (-2, -1))
        crossing, now = crossed(first, last, track)
        comes, done = link > 0, link.cumsum(axis=0)
        number, come, each = comes.cumsum(axis=0), np.zeros(len(orders)), np.arange(len(orders))
        room, final = links_room(comes, done, number, buffers), self._last
        for place, ways in enumerate(orders.T):
            freed, begun, crosses = number[place] - comes[place], done[place] - link[place], crossing[place]
            for step in range(self.seconds.shape[1]):
                seconds, crosses = self.seconds[ways, step] + crosses, 0.0 * crosses
                needs, speed, drag = self.needs[ways, step], 1 - self.loss[ways, step], self.drag[ways, step]
                waits = np.where(needs > 0, np.maximum(0.0, begun + needs - come), 0.0)
                now, come = now + waits, come + waits
                beside = np.clip((room[freed, each] - come) / drag, 0.0, seconds / speed)
                now, come = now + seconds + (1 - speed) * beside, come + drag * beside
                freed = freed + (final[ways] == step)
        return now

    @property
    def _last(self) -> Chosen:
        """The last step (ways) that needs what comes, -1 where none does."""
        places = np.arange(1, self.needs.shape[1] + 1)
        return np.asarray((places * (self.needs > 0)).max(axis=1) - 1)


class _Step(NamedTuple):
    seconds: float
    loss: float
    drag: float
    needs: float

    def like(self, other: "_Step") -> bool:
        """Whether both are one step, if the other needs nothing; a buffer is free when one that needs it is done."""
        return not self.needs and abs(self.loss - other.loss) < _ALIKE and abs(self.drag - other.drag) < _ALIKE

    def with_more(self, other: "_Step") -> "_Step":
        """Both one after the other."""
        seconds, beside = self.seconds + other.seconds, sum(each.seconds / (1 - each.loss) for each in (self, other))
        drag = sum(each.seconds * each.drag for each in (self, other)) / (seconds or 1.0)
        return _Step(seconds, 1 - seconds / beside if beside else 0.0, drag if seconds else 1.0, self.needs)


_NONE = _Step(0.0, 0.0, 1.0, 0.0)


def _merged(figures: tuple[Sequence[float], ...]) -> list[_Step]:
    found = list[_Step]()
    for step in map(_Step, *figures):
        if found and not step.needs and found[-1].like(step):
            found[-1] = found[-1].with_more(step)
        elif step.seconds > 0 or step.needs:
            found.append(step)
    return found
