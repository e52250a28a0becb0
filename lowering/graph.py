"""TaskGraph: what one iteration of a plan executes, as tasks with resources and dependencies."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from helmsman.lowering.ops import Kind
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Path

TaskKind = Kind | Literal["transfer", "decompress", "pin", "reshape"]


class Task(NamedTuple):
    """One unit of work on one lane. A tuple, for passes are made of thousands.

    `id`: `iteration/layer.op` (`7/3.q`, `7/head`), the join key of every Trace; transfers are `7/3.hidden@h2d`, parts
    `7/3.scores:0-4`, later batches of a zig-zag pass and the second sub-batch of an online one `7/3.q#1`. `resource`:
    the lane (a device or link name). `bytes`: weights and KV streamed from memory, or bytes moved by a transfer.
    `format`: of those bytes. `memories`: every memory the bytes pass through. `deps`: indices of earlier tasks. `path`:
    how a transfer leaves its home. `sequences`: how many caches attention reads, whose tokens do not see each other.
    `columns`: how many values of every token a product takes, whatever part of its rows.

    Kinds beside operations: `transfer`; `decompress` expands 4-bit groups; `pin` copies to page-locked memory;
    `reshape` turns a cache that is kept (batch, tokens, hidden)."""

    id: str
    kind: TaskKind
    op: str
    layer: int | None
    phase: Phase
    resource: str
    tokens: int
    bytes: int
    activation_bytes: int
    flops: int
    format: StoredFormat
    memories: tuple[str, ...]
    deps: tuple[int, ...]
    batch: int = 0
    path: Path = "pinned"
    sequences: int = 1
    columns: int = 0


class Pass(Protocol):
    """One pass over the model, of sequences that are alike (Iteration) or not (ServingIteration)."""

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
