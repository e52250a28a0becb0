"""The contract of the native event loop. Seconds, bytes/s; tasks are numbered in the order in which they are fed."""

from collections.abc import Sequence

class Loop:
    """Exclusive lanes, pools of bandwidth that running tasks share max-min fairly, time between tasks, and work that
    traffic delays.

    `capacity`: bytes/s of each pool; `record`: keep when every task ran until `finished` is called."""

    def __init__(self, capacity: Sequence[float], record: bool) -> None: ...
    def add_lane(self, kind: int) -> int:
        """A lane; `kind` (below 32) is the bit it sets in `masks` while it works."""

    def add_uses(self, uses: Sequence[tuple[int, int]]) -> int:
        """A way of drawing on pools: (pool, how many times the bytes count there)."""

    def add_slowings(self, slows: Sequence[tuple[int, float]], interrupts: Sequence[tuple[int, float]]) -> int:
        """(kind of traffic, f) that delays tasks: they run at 1 / (1 + sum of f of what is under way), at most, and ask
        pools for as much less; or, of what `interrupts`, for such a part of the time, in which they ask for all."""

    def add_traffic(self, kinds: Sequence[int]) -> int:
        """Kinds of traffic that are under way while a task runs."""

    def feed(
        self,
        lanes: Sequence[int],
        seconds: Sequence[float],
        rates: Sequence[float],
        uses: Sequence[int],
        traffic: Sequence[int],
        slowings: Sequence[int],
        gaps: Sequence[float],
        dep_counts: Sequence[int],
        deps: Sequence[int],
        handovers: Sequence[float],
    ) -> None:
        """More tasks: lane, seconds alone, bytes/s alone, uses, traffic and slowings
        (-1: none), least seconds after the task before on their lane; `deps` of all in one list, with least seconds
        after the end of each.

        Raises ValueError for a dependency on a task that has not come before."""

    def run(self, unfinished: int) -> None:
        """Go on until at most so many tasks are unfinished. Raises RuntimeError when nothing can go on."""

    @property
    def unfinished(self) -> int: ...
    @property
    def now(self) -> float: ...
    @property
    def overlap(self) -> float: ...
    @property
    def busy(self) -> list[float]: ...
    @property
    def masks(self) -> dict[int, float]: ...
    def finished(self) -> tuple[list[int], list[float], list[float]]:
        """(task, start, end) of what finished since the last call, in the order of finishing."""

def fair_speeds(
    rates: Sequence[float], uses: Sequence[Sequence[tuple[int, int]]], capacity: Sequence[float]
) -> list[float]:
    """Speeds in (0, 1] of flows that want `rates` of the pools in `uses`."""
