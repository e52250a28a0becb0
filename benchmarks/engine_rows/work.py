"""The work of a row, as plans are lowered: bytes of weights by format, bytes of caches, operations, FLOPs."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache

from benchmarks.engine_rows.models import format_named, formats_of, model_named
from helmsman.hwdb.compose import GIB, compose
from helmsman.lowering.lower import lower_runs
from helmsman.lowering.placement import Placement
from helmsman.planner.strategies.engines.engine_model import engine_model
from helmsman.planner.tensor_formats import with_own_formats
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import ComputeRule, KvRule, Residence, Select
from helmsman.schemas.workload import Workload

ATTENDING = ("attention", "scores", "wv", "index", "recurrence", "convolution")


@dataclass(slots=True)
class PassWork:
    """Sums a pass: bytes of weights and FLOPs by format, bytes of caches and FLOPs of attention, operations; `scores`:
    products of a query and a key."""

    weights: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    flops: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    cache: int = 0
    attending: int = 0
    scores: float = 0.0
    operations: int = 0


@cache
def machine() -> Hardware:
    """Return a machine on whose processor everything fits."""
    return compose(None, "AMD EPYC 9654", 16 * 1024 * GIB, None)


@cache
def work_of(model: str, quant: str, phase: str, tokens: int, context: int) -> PassWork | None:
    """Return the work of a pass of `tokens` that ends with `context` in the cache; None for a model or a format that is
    not known."""
    known, fmt = model_named(model), format_named(quant)
    if known is None or fmt is None:
        return None
    known = known.model_copy(update={"max_context": max(known.max_context, context + tokens)})
    workload = Workload(
        prompt_tokens=context, output_tokens=1, batch=1, batches=1, prefix_tokens=0, context=context + 1
    )
    everything = Select()
    placed = Placement(
        known,
        machine(),
        workload,
        residence=(Residence(select=everything, memory="dram", format=fmt),),
        kv=(KvRule(select=everything, memory="dram", format="f16"),),
        compute=(ComputeRule(select=everything, device="cpu"),),
    )
    placed = replace(with_own_formats(placed, formats_of(known, quant)))
    made = PassWork()
    for run in lower_runs(placed, Iteration(1, phase, 1, tokens, context)).runs:
        for task in run.tasks:
            if task.kind in ("transfer",):
                continue
            made.operations += run.times
            if task.kind in ATTENDING:
                made.cache += run.times * task.bytes
                made.attending += run.times * task.flops
                made.scores += run.times * task.flops / (4.0 * engine_model(known).width)
            elif task.kind in ("linear", "experts"):
                made.weights[task.format] += run.times * task.bytes
                made.flops[task.format] += run.times * task.flops
    return made
