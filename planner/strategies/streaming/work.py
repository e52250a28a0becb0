"""The tasks that lowering makes of a layer, computed on either side and streamed in every way; summed into columns."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from helmsman.lowering.graph import CACHED, Task
from helmsman.lowering.lower import lower
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.streaming.division import layer_operations
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.schemas.plan import Path
from helmsman.schemas.storage import STORAGE

Amounts = dict[str, float]
"""An amount of every operation of a layer, in order."""

_COMPUTING = ("norm", "linear", "scores", "softmax", "wv", "attention")


@dataclass(frozen=True)
class LayerWork:
    """The tasks of a layer: all on the host (`here`), all on the accelerator with what comes for them (`there`), the
    same in 4-bit groups (`packed`); weights `read` from storage, and `staged` on their way from host memory."""

    ops: tuple[str, ...]
    accelerator: str
    here: list[Task]
    there: list[Task]
    packed: list[Task]
    read: list[Task]
    staged: list[Task]

    def columns(self, amount: Callable[[Task], float]) -> dict[str, Amounts]:
        """`amount` of tasks by column of a LayerTable and operation; storage as if devices took turns."""
        weights, cache = self._moved(self.there, amount)
        weights_q, cache_q = self._moved(self.packed, amount)
        expanded = [task for task in self.packed if task.kind == "decompress"]
        return {
            "host": self.computed(self.here, amount),
            "accelerator": self.computed(self.there, amount),
            "weights": weights,
            "cache": cache,
            "weights_q": weights_q,
            "cache_q": cache_q,
            "decompress_weights": self._sums(amount, _of_weights(expanded)),
            "decompress_cache": self._sums(amount, _of_cache(expanded)),
            "storage": self._sums(amount, self.read),
            "staged": self._sums(amount, self.staged),
        }

    def computed(self, tasks: list[Task], amount: Callable[[Task], float]) -> Amounts:
        """By operation; `v` pays for the cache that is written after it, attention for caches that are turned first."""
        own = self._sums(amount, [t for t in tasks if t.kind in _COMPUTING], [t for t in tasks if t.kind == "reshape"])
        return {**own, "v": own["v"] + sum(amount(task) for task in tasks if task.kind == "append")}

    def stored(self, op: str) -> list[Task]:
        """The reading of an operation's weights from storage."""
        return [task for task in self.read if task.operation == op]

    def _moved(self, tasks: list[Task], amount: Callable[[Task], float]) -> tuple[Amounts, Amounts]:
        """Of weights and of caches on their way to the accelerator; copies to page-locked memory are part of it."""
        coming = [task for task in tasks if task.kind == "transfer"]
        there = [task for task in coming if task.memories[-1] == self.accelerator]
        pinned = [task for task in tasks if task.kind == "pin" and task.piece is None]
        weights = self._sums(amount, _of_weights(coming), _of_weights(pinned))
        return weights, self._sums(amount, _of_cache(there), _of_cache(pinned))

    def _sums(self, amount: Callable[[Task], float], *lists: Iterable[Task]) -> Amounts:
        """Of every operation, those of one list of tasks after the other."""
        sums = [dict.fromkeys(self.ops, 0.0) for _ in lists]
        for found, tasks in zip(sums, lists, strict=True):
            for task in tasks:
                found[task.operation] = found.get(task.operation, 0.0) + amount(task)
        return {op: sum(found[op] for found in sums) for op in self.ops}


def _of_weights(tasks: Iterable[Task]) -> list[Task]:
    return [task for task in tasks if task.payload == "weights"]


def _of_cache(tasks: Iterable[Task]) -> list[Task]:
    return [task for task in tasks if task.payload in CACHED]


def layer_work(
    frame: Frame, from_storage: Layout | None, weights_q4: bool, cache_q4: bool, pinning: Path = "pinned"
) -> LayerWork:
    """The tasks of one layer in the mean decode step of one batch.

    `from_storage`: how weights come from storage, where they may; `pinning`: how everything else comes."""
    whole = frame.units({})
    everything = Layout(whole, 0, len(whole), pinning=pinning)
    there = layer_tasks(frame, everything)
    ops = layer_operations(frame.model, frame.form)
    brought = {task.operation for task in _of_weights(there)}
    linear = tuple(op for op in ops if op in brought)
    stored = layer_tasks(frame, replace(from_storage, stored=linear)) if from_storage is not None else []
    disks = {memory.name for memory in frame.roles.hardware.memories if memory.kind == STORAGE}
    coming = [t for t in _of_weights(stored) if t.operation in linear and t.kind == "transfer"]
    return LayerWork(
        ops=ops,
        accelerator=frame.accelerator.memory,
        here=layer_tasks(frame, Layout(whole, 0, 0)),
        there=there,
        packed=layer_tasks(frame, replace(everything, weights_q4=weights_q4, cache_q4=cache_q4)),
        read=[task for task in coming if task.memories[0] in disks],
        staged=[task for task in coming if task.memories[0] not in disks],
    )


def layer_tasks(frame: Frame, layout: Layout) -> list[Task]:
    """The tasks of the only block of a one-block model in the mean decode step."""
    small = frame.model.with_layers(1)
    one = frame.workload.model_copy(update={"batches": 1})
    placed = place(replace(frame, model=small, workload=one), layout)
    return [task for task in lower(placed, mean_step(one)).tasks if task.layer is not None]
