"""The contract of the native clock: its event loop, and stages that take turns. Seconds, bytes/s; tasks are numbered in
the order in which they are fed."""

from array import array
from collections.abc import Sequence

from numpy import int32
from numpy.typing import NDArray

class Loop:
    """Exclusive lanes, pools of bandwidth that running tasks share max-min fairly, time between tasks, and work that
    traffic delays.

    `capacity`: bytes/s of each pool; `record`: keep when every task ran until `finished` is called."""

    def __init__(self, capacity: Sequence[float], record: bool) -> None: ...
    def add_lane(self, kind: int, join: float) -> int:
        """Add a lane and return its number. `kind` (below 32) is the bit it sets in `masks` while it works; `join`:
        seconds after the task before on this lane until one starts that waits for other lanes."""

    def set_handover(self, source: int, target: int, seconds: float) -> None:
        """Set the seconds from the end of a task on lane `source` until one on lane `target` may start that waits for
        it; 0 where none is set."""

    def add_uses(self, uses: Sequence[tuple[int, int]]) -> int:
        """Add a way of drawing on pools, (pool, how many times the bytes count there), and return its number."""

    def add_slowings(self, slows: Sequence[tuple[int, float]], interrupts: Sequence[tuple[int, float]]) -> int:
        """Add a list of (kind of traffic, f) that delays tasks, and return its number. They run at 1 / (1 + sum of f of
        what is under way), at most, and ask pools for as much less; or, of what `interrupts`, for such a part of the
        time, in which they ask for all."""

    def add_traffic(self, kinds: Sequence[int]) -> int:
        """Add a set of kinds of traffic that are under way while a task runs, and return its number."""

    def add_work(self, lane: int, seconds: float, rate: float, uses: int, traffic: int, slowings: int) -> int:
        """Add a kind of work, and return its number: its lane, its seconds and bytes/s alone, and the numbers of its
        uses, traffic and slowings (-1: none). Raises ValueError for seconds below 0 and for unknown numbers."""

    def feed(self, works: array[int] | NDArray[int32], dep_counts: array[int], deps: array[int]) -> None:
        """Add tasks: of each its work and how many tasks it waits for (arrays of type `i`), and the numbers of these,
        of all tasks in one array of type `q`. Raises ValueError for a dependency on a task that has not come before."""

    def run(self, unfinished: int) -> None:
        """Go on until at most `unfinished` tasks are left. Raises RuntimeError when nothing can go on."""

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

Awaited = tuple[tuple[int, float], ...]
"""Numbers of tasks, each with the seconds of handing over after it."""

TimedTask = tuple[int, float, float, Awaited, Awaited, bool]
"""A task of a stage: the number of its lane, its seconds, those of joining after the task before on that lane; the
tasks of its own stage and the outputs of the stage before that it waits for, and whether it waits for a buffer."""

class TurnStage:
    """The tasks of a block, or of an end of the model, by batch: those in the turn that ends the stage before (`head`),
    those in the turn after (`tail`), and those after all turns (`last`). Tasks are numbered in that order.

    `outputs`: the tasks that make what the next stage reads; `users`: those that use what came to the accelerator `to`;
    `launching`: seconds of the thread that launches for all devices, if one does."""

    def __init__(
        self,
        head: Sequence[Sequence[TimedTask]],
        tail: Sequence[Sequence[TimedTask]],
        last: Sequence[TimedTask],
        outputs: Sequence[int],
        users: Sequence[int],
        to: int,
        launching: float,
    ) -> None: ...

def followed(stages: Sequence[TurnStage], buffers: int, lanes: int) -> float:
    """Seconds until all tasks of the stages of a model are done, with `buffers` (two at least) on every accelerator for
    stages to which something comes: a lane does its tasks one at a time, in the order in which lowering makes them.

    A turn ends where a block's work goes to another device (`lowering.turns`), so batches wait for each other in ways
    that no pace of whole blocks tells: those were up to 29 % off. Raises ValueError for stages that do not follow each
    other, and for more than 4096 lanes."""

def sequence_seconds(
    kinds: array[int],
    seconds: Sequence[float],
    waits: array[int],
    joins: Sequence[float],
    handovers: Sequence[float],
) -> float:
    """Seconds until the last of tasks that run one at a time is done; `kinds`: of each its kind (an array of type `i`),
    which takes `seconds`.

    `waits` (of type `q`): of every task that waits for other lanes, in order, its number, its lane, the task before it
    on that lane (-1: none), how many tasks of other lanes it waits for, and the number and the lane of each. `joins`:
    by lane seconds after the task before; `handovers`: from lane to lane, row after row. Raises ValueError for numbers
    that are none."""

def fair_speeds(
    rates: Sequence[float], uses: Sequence[Sequence[tuple[int, int]]], capacity: Sequence[float]
) -> list[float]:
    """Speeds in (0, 1] of flows that want `rates` of the pools in `uses`."""
