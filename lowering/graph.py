"""TaskGraph: what one iteration of a plan executes, as tasks with resources and dependencies."""

from dataclasses import dataclass
from typing import Literal

from helmsman.lowering.ops import Kind
from helmsman.scheduler.iteration import Iteration, Phase
from helmsman.schemas.formats import Format


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work on one lane.

    `id`: `iteration/layer.op` (`7/3.q`, `7/head`), the join key of every Trace; transfers are
    `7/3.hidden@h2d`. `resource`: the lane (a device or link name). `bytes`: weights and KV streamed from
    memory, or bytes moved by a transfer. `format`: of those bytes. `memories`: every memory the bytes
    pass through. `deps`: indices of earlier tasks."""

    id: str
    kind: Kind | Literal["transfer"]
    op: str
    layer: int | None
    phase: Phase
    resource: str
    tokens: int
    bytes: int
    activation_bytes: int
    flops: int
    format: Format
    memories: tuple[str, ...]
    deps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """The tasks of one iteration in a topological order."""

    iteration: Iteration
    tasks: tuple[Task, ...]
