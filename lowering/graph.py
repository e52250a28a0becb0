"""TaskGraph: what one iteration of a plan executes, as tasks with resources and dependencies."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from helmsman.lowering.operation import Kind
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Path

MoveKind = Literal["transfer", "decompress", "pin", "reshape"]
TaskKind = Kind | MoveKind

Payload = Literal[
    "weights", "cache", "new cache entries", "cache page", "swapped out", "swapped in", "prefix", "activation"
]
"""What a move carries: weights, or past keys and values, of an operation; keys and values of new tokens on their way
home; a page of a cache with a window; a served request's cache on its way to the other one; keys and values that were
computed before (`lowering.prefix`); what an operation made."""

CACHED: frozenset[Payload | None] = frozenset(("cache", "new cache entries", "cache page", "swapped out", "swapped in"))
"""Keys and values that caches hold."""

Rows = tuple[int, int]
"""Rows or heads start <= i < stop of a divided operation."""


class Task(NamedTuple):
    """One unit of work on one lane. A tuple, for passes are made of thousands.

    Up to `columns`, all but its place in the pass that its price depends on. `op`: what it does, as Traces and terms of
    plans call it. `resource`: the lane (a device or link name). `bytes`: weights and KV streamed from memory, or bytes
    moved by a transfer. `format`: of those bytes. `memories`: every memory the bytes pass through. `path`: how a
    transfer leaves its home. `sequences`: how many caches attention reads, whose tokens do not see each other.
    `columns`: how many values of every token a product takes, whatever part of its rows. `per_token`: rows of
    activations (`tokens`) that a token of the pass has: of experts those of them that it chooses. `looks_up`: whether
    it is a router behind which the host looks up what slots hold.

    `deps`: indices of earlier tasks. `batch`: of a zig-zag pass, or the sub-batch of an online one. `operation`: what
    it does a part of, or moves something for: `attention` where a move is of a whole cache, and of activations the
    output as `lowering.dataflow` calls it. `payload`: what a move carries. `rows`: None of a whole operation. `piece`:
    the number of a page, or among pieces that travel apart; None of the first of these, or the only one. `home`: the
    memory that serves a share of a transfer; None where one serves all of it. `step`: the number of the pass. `name`:
    of the task in the pass, `3.q#1` (`lowering.emit`).

    Kinds beside operations: `transfer`; `decompress` expands 4-bit groups; `pin` copies to page-locked memory;
    `reshape` turns a cache that is kept (batch, tokens, hidden)."""

    kind: TaskKind
    op: str
    phase: Phase
    resource: str
    tokens: int
    bytes: int
    activation_bytes: int
    flops: int
    format: StoredFormat
    memories: tuple[str, ...]
    path: Path = "pinned"
    sequences: int = 1
    columns: int = 0
    per_token: float = 1.0
    looks_up: bool = False
    layer: int | None = None
    deps: tuple[int, ...] = ()
    batch: int = 0
    operation: str = ""
    payload: Payload | None = None
    rows: Rows | None = None
    piece: int | None = None
    home: str | None = None
    step: int = 0
    name: str = ""

    @property
    def id(self) -> str:
        """The join key of every Trace: `7/3.q#1`."""
        return f"{self.step}/{self.name}"


PLACE = Task._fields.index("layer")
"""Where the fields of a task begin that its price does not depend on, but for whether it is of a block."""


class Pass(Protocol):
    """One pass over the model, of sequences that are alike (`scheduler.iteration.Iteration`) or not."""

    @property
    def index(self) -> int:
        """Its number."""

    @property
    def phase(self) -> Phase:
        """`prefill` where prompts are in it."""

    @property
    def context(self) -> int:
        """Tokens that the longest sequence holds after it."""


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """The tasks of one pass in a topological order, which is also that of every lane: lanes are queues."""

    iteration: Pass
    tasks: tuple[Task, ...]


class TaskRun(NamedTuple):
    """Tasks of a pass that come `times` times in a row.

    Those of the next time wait for tasks that are as many places later as a time has tasks, and belong to blocks that
    are `layers` further on."""

    tasks: tuple[Task, ...]
    times: int = 1
    layers: int = 0


@dataclass(frozen=True, slots=True)
class RepeatingGraph:
    """The tasks of a `TaskGraph`, those that repeat each other once."""

    iteration: Pass
    runs: tuple[TaskRun, ...]


def runs_of(graph: TaskGraph | RepeatingGraph) -> tuple[TaskRun, ...]:
    """Return the runs of a pass: one, of all tasks, where repetitions are not known."""
    return graph.runs if isinstance(graph, RepeatingGraph) else (TaskRun(graph.tasks),)
