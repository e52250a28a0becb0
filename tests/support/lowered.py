"""What one more layer adds to a decode step of a lowered split: the oracle of the search's closed forms."""

from collections.abc import Callable
from dataclasses import replace

from plain_clock import makespan

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.op_split.search import SplitSearch, search
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.schemas.workload import Workload

WARM, LAYERS = 4, 4

SMALL = ("Qwen3-0.6B", "rtx3060-5600x")

Price = Callable[[Task], float]


def question(
    model: str = SMALL[0],
    machine: str = SMALL[1],
    batch: int = 16,
    batches: int = 1,
    frame: dict[str, object] | None = None,
    **options: object,
) -> OpSplit:
    """Splits of a decode step at a context of 528."""
    work = Workload(prompt_tokens=512, output_tokens=32, batch=batch, context=544, batches=batches)
    asked = Frame(load_model(model), roles(load_hardware(machine, None)), work, **(frame or {}))
    return OpSplit(asked, SplitRules(**options), CostOptions(), "latency")


def at(asked: OpSplit, **changes: object) -> SplitSearch:
    """The search with some of its options changed."""
    return search(asked.table, replace(asked.search_options, **changes))


def graphs(asked: OpSplit, layout: Layout, warm: int = WARM, layers: int = LAYERS) -> list[TaskGraph]:
    """The mean decode steps of the model with `warm` and with so many more layers."""
    step = mean_step(asked.frame.workload, asked.frame.workload.batches)
    models = [asked.frame.model.with_layers(count) for count in (warm, warm + layers)]
    return [lower(place(replace(asked.frame, model=model), layout), step) for model in models]


def median(asked: OpSplit) -> Price:
    return lambda task: asked.costs.price(task).mid


def period(asked: OpSplit, layout: Layout, price: Price | None = None) -> float:
    """Seconds per layer without contention."""
    ends = [makespan(graph, price or median(asked)) for graph in graphs(asked, layout)]
    return (ends[1] - ends[0]) / LAYERS


def pooled(asked: OpSplit, layout: Layout) -> dict[str, float]:
    """Seconds per layer that every memory and link works."""
    fewer, more = (busy(asked, graph) for graph in graphs(asked, layout))
    return {name: (more[name] - fewer[name]) / LAYERS for name in more}


def busy(asked: OpSplit, graph: TaskGraph) -> dict[str, float]:
    """Seconds that every memory and link works for a graph: no schedule of it is shorter."""
    pools, price = asked.costs.pools, median(asked)
    total = dict.fromkeys(pools.capacity, 0.0)
    for task in graph.tasks:
        for pool, seconds in pools.draws(task, price(task)).items():
            total[pool] += seconds
    return total


def crossing(asked: OpSplit, layout: Layout) -> dict[str, float]:
    """Bytes of activations and new keys and values per layer, by link."""
    found: dict[str, float] = {}
    for graph, sign in zip(graphs(asked, layout), (-1, 1), strict=True):
        for task in graph.tasks:
            if task.kind == "transfer" and task.payload in ("activation", "new cache entries"):
                link = task.resource.partition(":")[0]
                found[link] = found.get(link, 0.0) + sign * task.bytes / LAYERS
    return found


def without_streams(asked: OpSplit) -> Price:
    """Prices of a layer whose data is there."""

    def price(task: Task) -> float:
        there = task.payload in ("weights", "cache") and task.kind in ("transfer", "decompress")
        return 0.0 if there else asked.costs.price(task).mid

    return price


def ranges(asked: OpSplit) -> list[tuple[int, int]]:
    """Every split, the empty ones once."""
    count = len(asked.units)
    return [(0, 0), *((i, j) for i in range(count) for j in range(i + 1, count + 1))]
