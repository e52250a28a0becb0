"""Tasks as they are made: numbered, named after their place in the pass, handed out unit by unit."""

from dataclasses import dataclass, field

from helmsman.lowering.graph import Task, TaskKind
from helmsman.lowering.ops import Operation
from helmsman.lowering.parts import OperationPart
from helmsman.lowering.streams import Hop
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Path


@dataclass
class Emitter:
    """Makes the tasks of one iteration; `count`: tasks made so far; `batch`: whose they are."""

    iteration: Iteration
    count: int = 0
    batch: int = 0
    fresh: list[Task] = field(default_factory=list)

    def take(self) -> list[Task]:
        """The tasks made since the last call; they are not kept."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def transfer(
        self,
        what: str,
        layer: int | None,
        hop: Hop,
        fmt: StoredFormat,
        deps: tuple[int, ...],
        op: str | None = None,
        lane: str | None = None,
    ) -> int:
        """A transfer called `what@link` of operation `op` (default `what`) on `lane` (default the link's own)."""
        link = hop.link
        memories, lane = (link.source_memory, link.target_memory), lane or link.name
        name = f"{what}@{link.name}"
        return self.append(name, layer, "transfer", op or what, lane, hop.size, fmt, memories, deps, path=hop.path)

    def operation(self, op: Operation, part: OperationPart, layer: int | None, deps: tuple[int, ...]) -> int:
        """A part of an operation."""
        return self.append(
            part.name,
            layer,
            op.kind,
            op.name,
            part.device,
            part.size,
            part.format,
            (part.memory,),
            deps,
            op.tokens,
            part.activation_bytes,
            part.flops,
            sequences=op.sequences,
            columns=op.columns,
        )

    def append(
        self,
        name: str,
        layer: int | None,
        kind: TaskKind,
        op: str,
        resource: str,
        size: int,
        fmt: StoredFormat,
        memories: tuple[str, ...],
        deps: tuple[int, ...],
        tokens: int = 0,
        activation_bytes: int = 0,
        flops: int = 0,
        path: Path = "pinned",
        sequences: int = 1,
        columns: int = 0,
    ) -> int:
        """The index of a new task; its name is as in `7/3.q#1`: pass, block, operation, batch."""
        place = name if layer is None else f"{layer}.{name}"
        batch = f"#{self.batch}" if self.batch else ""
        self.fresh.append(
            Task(
                f"{self.iteration.index}/{place}{batch}",
                kind,
                op,
                layer,
                self.iteration.phase,
                resource,
                tokens,
                size,
                activation_bytes,
                flops,
                fmt,
                memories,
                deps,
                self.batch,
                path,
                sequences,
                columns,
            )
        )
        self.count += 1
        return self.count - 1
