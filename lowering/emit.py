"""Tasks as they are made: numbered, named after their place in the pass, handed out unit by unit.

What names and `op` of tasks say is written here, and read by `lowering.task_names` alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from helmsman.lowering.cargo import Cargo, rows_word, transfer_word
from helmsman.lowering.graph import MoveKind, Task, TaskRun
from helmsman.lowering.operation import Operation
from helmsman.lowering.parts import OperationPart
from helmsman.lowering.streams import Hop
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Path

Words = tuple[str, str]
"""What a task's name calls what it does, and its `op`."""


@dataclass
class Emitter:
    """Makes the tasks of one iteration; `count`: tasks made so far; `batch`: whose they are."""

    iteration: Iteration
    count: int = 0
    batch: int = 0
    fresh: list[Task] = field(default_factory=list)

    def take(self) -> tuple[Task, ...]:
        """The tasks made since the last call; they are not kept."""
        fresh, self.fresh = tuple(self.fresh), []
        return fresh

    def transfer(
        self,
        cargo: Cargo,
        layer: int | None,
        hop: Hop,
        fmt: StoredFormat,
        deps: tuple[int, ...],
        lane: str | None = None,
    ) -> int:
        """The index of a transfer, on `lane` (default the link's own)."""
        link, words = hop.link, (transfer_word(cargo, hop.link.name), cargo.op)
        ends = link.source_memory, link.target_memory
        return self._move("transfer", words, cargo, layer, lane or link.name, hop.size, fmt, ends, deps, hop.path)

    def preparation(
        self,
        kind: MoveKind,
        cargo: Cargo,
        layer: int | None,
        lane: str,
        size: int,
        fmt: StoredFormat,
        memories: tuple[str, ...],
        deps: tuple[int, ...],
    ) -> int:
        """The index of what page-locks, expands or turns a payload, reading and writing `size` bytes."""
        word, op = cargo.word, cargo.op
        if kind == "reshape":
            word, op = rows_word(cargo.operation, cargo.rows), cargo.operation
        words = f"{word}.{kind}", f"{word if kind == 'pin' else op}.{kind}"
        return self._move(kind, words, cargo, layer, lane, size, fmt, memories, deps)

    def _move(
        self,
        kind: MoveKind,
        words: Words,
        cargo: Cargo,
        layer: int | None,
        lane: str,
        size: int,
        fmt: StoredFormat,
        memories: tuple[str, ...],
        deps: tuple[int, ...],
        path: Path = "pinned",
    ) -> int:
        operation, payload, rows, piece, home, _, _ = cargo
        iteration, batch = self.iteration, self.batch
        return self._add(
            Task(
                kind,
                words[1],
                iteration.phase,
                lane,
                0,
                size,
                0,
                0,
                fmt,
                memories,
                path,
                1,
                0,
                1.0,
                False,
                layer,
                deps,
                batch,
                operation,
                payload,
                rows,
                piece,
                home,
                iteration.index,
                task_name(layer, words[0], batch),
            )
        )

    def operation(
        self,
        op: Operation,
        part: OperationPart,
        layer: int | None,
        deps: tuple[int, ...],
        words: Words | None = None,
        page: int | None = None,
    ) -> int:
        """The index of a part of an operation, of `page` of its cache or all; `words`: unlike the operation's name."""
        iteration, batch, (word, name) = self.iteration, self.batch, words or (part.word, op.name)
        if page is not None:
            word = page_word(word, page)
        return self._add(
            Task(
                op.kind,
                name,
                iteration.phase,
                part.device,
                part.tokens,
                part.size,
                part.activation_bytes,
                part.flops,
                part.format,
                (part.memory,),
                "pinned",
                part.sequences,
                op.columns,
                part.per_token,
                part.looks_up,
                layer,
                deps,
                batch,
                op.name,
                None,
                part.rows,
                page,
                None,
                iteration.index,
                task_name(layer, word, batch),
            )
        )

    def _add(self, task: Task) -> int:
        self.fresh.append(task)
        self.count += 1
        return self.count - 1


def task_name(layer: int | None, word: str, batch: int = 0) -> str:
    """The name of a task: `3.q#1`, block, what is done, batch."""
    place = word if layer is None else f"{layer}.{word}"
    return f"{place}#{batch}" if batch else place


def page_word(operation: str, page: int) -> str:
    """What names call attention to a page: `attention.page7`."""
    return f"{operation}.page{page}"


def repeated(run: TaskRun) -> Iterator[Task]:
    """Yield all tasks of a run, time after time."""
    yield from run.tasks
    for number in range(1, run.times):
        tasks, layers = number * len(run.tasks), number * run.layers
        yield from [_later(task, tasks, layers) for task in run.tasks]


def _later(task: Task, tasks: int, layers: int) -> Task:
    """Return the task that does the same as many tasks and blocks later."""
    deps = tuple([dep + tasks for dep in task.deps])
    if task.layer is None:
        return task._replace(deps=deps)
    layer, word = task.layer + layers, task.name.partition(".")[2]
    return task._replace(layer=layer, deps=deps, name=f"{layer}.{word}")
