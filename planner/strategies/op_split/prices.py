"""What the units of a layer cost: computed on either side, transferred, expanded, read from storage (PARK-46)."""

from collections.abc import Callable
from dataclasses import replace

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.planner.costs import CostModel
from helmsman.planner.predict import mean_step
from helmsman.planner.strategies.op_split.division import Piece, layer_operations
from helmsman.planner.strategies.op_split.layer_table import LayerTable, chunked
from helmsman.planner.strategies.op_split.layer_table import layer_table as of_operations
from helmsman.planner.strategies.op_split.place import Frame, Layout, place
from helmsman.planner.strategies.op_split.storage import parallel
from helmsman.schemas.plan import Path

Seconds = dict[str, float]


def layer_table(
    frame: Frame,
    costs: CostModel,
    units: tuple[Piece, ...],
    from_storage: Layout | None,
    weights_q4: bool,
    cache_q4: bool,
    pinning: Path = "pinned",
) -> LayerTable:
    """The table of one layer in the mean decode step of one batch, divided into `units`.

    `from_storage`: how weights come from storage, where they may; `pinning`: how everything else comes, a copy to
    page-locked memory being part of its transfer. Every figure is the price of a task that lowering
    makes of the operation there, so that search, prediction and simulation agree."""
    whole = frame.units({})
    everything = Layout(whole, 0, len(whole), pinning=pinning)
    names = layer_operations(frame.model, frame.form)
    here = layer_tasks(frame, Layout(whole, 0, 0))
    there = layer_tasks(frame, everything)
    packed = layer_tasks(frame, replace(everything, weights_q4=weights_q4, cache_q4=cache_q4))
    linear = tuple(op for op in names if f"{op}.weights" in {task.op for task in there})
    stored = layer_tasks(frame, replace(from_storage, stored=linear)) if from_storage is not None else []
    read = [task for task in stored if frame.roles.hardware.memory(task.memories[0]).kind == "nvme"]
    staged = [task for task in stored if task not in read]

    def sum_of(tasks: list[Task], name: Callable[[str], tuple[str, ...]], kinds: tuple[str, ...]) -> Seconds:
        return {op: sum(costs.price(t).mid for t in tasks if t.op in name(op) and t.kind in kinds) for op in names}

    def columns(tasks: list[Task]) -> tuple[Seconds, Seconds]:
        weights = sum_of(tasks, lambda op: (f"{op}.weights", f"{op}.weights.pin"), _MOVING)
        coming = [task for task in tasks if task.memories[-1] == frame.accelerator.memory or task.kind == "pin"]
        return weights, sum_of(coming, _cache_moves, _MOVING)

    weights, cache = columns(there)
    weights_q, cache_q = columns(packed)
    found = {
        "host": sum_of(here, _with_append, _COMPUTING),
        "accelerator": sum_of(there, _with_append, _COMPUTING),
        "weights": weights,
        "cache": cache,
        "weights_q": weights_q,
        "cache_q": cache_q,
        "decompress_weights": sum_of(packed, _expanded_weights, ("decompress",)),
        "decompress_cache": sum_of(packed, _expanded_cache, ("decompress",)),
        "storage": {op: _together(frame, costs, [t for t in read if t.op == f"{op}.weights"]) for op in names},
        "staged": {op: seconds if op in linear else 0.0 for op, seconds in columns(staged)[0].items()},
    }
    whole_table = of_operations(names, {name: tuple(column.values()) for name, column in found.items()})
    return chunked(whole_table, _fractions(units))


def _together(frame: Frame, costs: CostModel, tasks: list[Task]) -> float:
    """Seconds until all devices have read their stripes (PARK-42)."""
    moved = [(task.resource, costs.price(task).mid, task.bytes) for task in tasks]
    return parallel(frame.roles.hardware, moved)


_MOVING = ("transfer", "pin")
_COMPUTING = ("norm", "linear", "append", "scores", "softmax", "wv", "attention", "reshape")


def _with_append(op: str) -> tuple[str, ...]:
    """`v` pays for the cache that is written after it; scores and wv for caches that must be turned first."""
    return (op, "append") if op == "v" else (op, f"{op}.reshape")


def _expanded_weights(op: str) -> tuple[str, ...]:
    return (f"{op}.weights.decompress",)


def _expanded_cache(op: str) -> tuple[str, ...]:
    return tuple(f"{name}.decompress" for name in _cache_name(op))


def _cache_name(op: str) -> tuple[str, ...]:
    return {"scores": ("keys",), "wv": ("values",), "attention": ("kv",)}.get(op, ())


def _cache_moves(op: str) -> tuple[str, ...]:
    return tuple(f"{name}{copy}" for name in _cache_name(op) for copy in ("", ".pin"))


def layer_tasks(frame: Frame, layout: Layout) -> list[Task]:
    """The tasks of the only block of a one-block model in the mean decode step."""
    small = frame.model.model_copy(update={"layers": 1})
    one = frame.workload.model_copy(update={"batches": 1})
    placed = place(replace(frame, model=small, workload=one), layout)
    return [task for task in lower(placed, mean_step(one)).tasks if task.layer is not None]


def _fractions(units: tuple[Piece, ...]) -> dict[str, list[float]]:
    """The shares of the chunks of every operation that is divided."""
    shares: dict[str, list[float]] = {}
    for unit in units:
        shares.setdefault(unit.op, []).append((unit.stop - unit.start) / unit.extent)
    return {op: parts for op, parts in shares.items() if len(parts) > 1}
