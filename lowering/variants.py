"""Workload variants of a decode step: fewer past tokens attended to, or activations cached instead of K and V.

Both change operations before they become tasks, so bytes, FLOPs and dependencies of the graph are those of the variant.

Of P past tokens a step attends to S = ceil(keep P) beside its own (InfiniGen, H2O). Choosing them reads `select` of
the keys of all P tokens and does as large a share of the score FLOPs; partial scores are written and read once
(InfiniGen's skewed key columns; assumed to lie side by side). Bringing chosen tokens costs what as many neighbours do
(assumed). With a cache of activations X (one normed input per token, Park & Egger section 2.2, ASC) scores are
(q W_k^T) X^T and the outcome (p X) W_v: X has no heads, so it is read once for scores and values of all of them;
keys and values of past tokens are never formed, which would cost head_dim times more FLOPs.
"""

from dataclasses import replace
from math import ceil

from helmsman.lowering.operation import Formats, Operation
from helmsman.lowering.ops import block_ops
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.blocks.positions import LearnedPositions
from helmsman.schemas.cache_use import CacheUse
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import size_of
from helmsman.schemas.model import Model

REORDERED: dict[str, tuple[str, ...]] = {
    "k": ("q",),
    "append": ("norm1",),
    "attention": ("k", "append", "new_kv"),
    "v": ("attention",),
    "o": ("v", "input"),
}
"""The values that reordered operations read, where they differ."""


def attending(use: CacheUse, iteration: Iteration) -> Iteration:
    """Return the pass as attention sees it: a decode step with the past tokens that are kept; prompts are whole."""
    if iteration.phase != "decode" or use.keep == 1.0:
        return iteration
    return replace(iteration, context=iteration.tokens + ceil(use.keep * iteration.past - 1e-9))


def cached_elements(model: Model, use: CacheUse, elements: int) -> int:
    """Elements that a cache keeps where keys and values would be `elements`."""
    return elements if use.holds == "kv" else round(elements * model.hidden / (2 * model.dense.kv_width))


def reorders(use: CacheUse, iteration: Iteration) -> bool:
    """Whether K and V project queries and outcomes: decode steps on cached activations."""
    return use.holds == "activations" and iteration.phase == "decode"


def check_cache_use(model: Model, use: CacheUse) -> None:
    """Raise UsageError when activations cannot stand for keys and values of `model`, or are not smaller."""
    if use.holds == "kv":
        return
    remedy = "leave it out: keys and values are cached"
    if not isinstance(model.dense.position, LearnedPositions) or model.dense.qk_norm:
        message = "keys are rotated or normed after their projection: they do not follow from cached activations"
        raise UsageError(message, field="activation_cache", remedy=remedy)
    if model.hidden >= 2 * model.dense.kv_width:
        message = f"activations ({model.hidden} values) are not smaller than K and V ({2 * model.dense.kv_width})"
        raise UsageError(message, field="activation_cache", remedy=remedy)


def varied_ops(
    model: Model, layer: int, iteration: Iteration, fmt: Formats, divided: bool, use: CacheUse
) -> tuple[Operation, ...]:
    """Return the operations of one block under a variant, in order; without one those of `block_ops`."""
    seen = attending(use, iteration)
    ops = block_ops(model, layer, seen, fmt, divided)
    if use.holds == "activations":
        ops = tuple(_writes_input(model, op, fmt) if op.kind == "append" else op for op in ops)
    if reorders(use, iteration):
        ops = _reordered(model, ops, seen, fmt)
    if use.select > 0 and iteration.phase == "decode":
        whole = {op.name: op for op in varied_ops(model, layer, iteration, fmt, divided, CacheUse(holds=use.holds))}
        ops = tuple(_choosing(model, op, whole[op.name], use, iteration, fmt) for op in ops)
    return ops


def _writes_input(model: Model, op: Operation, fmt: Formats) -> Operation:
    """Appending a token's activations instead of its keys and values."""
    values = op.tokens * model.hidden
    moved = size_of(2 * values, fmt.activations)
    return op._replace(kv_write=size_of(values, fmt.kv), activation_bytes=moved, out_bytes=moved // 2, flops=0)


def _reordered(model: Model, ops: tuple[Operation, ...], iteration: Iteration, fmt: Formats) -> tuple[Operation, ...]:
    """norm1, q, k, append, attention, v, o, ...: every head's query and outcome are as wide as the model between."""
    of = {op.name: op for op in ops}
    if "attention" not in of:
        raise BadInputError("cached activations are read by undivided attention", field="compute")
    tokens = iteration.batch * iteration.tokens
    narrow = size_of(tokens * model.dense.q_width, fmt.activations)
    wide = size_of(tokens * model.dense.heads * model.hidden, fmt.activations)
    flops = 2 * tokens * model.dense.q_width * model.hidden
    attended = iteration.batch * iteration.tokens * iteration.context
    changed = {
        "k": of["k"]._replace(activation_bytes=narrow + wide, out_bytes=wide, flops=flops, extent=1),
        "attention": of["attention"]._replace(
            kv_read=size_of(iteration.batch * iteration.context * model.hidden, fmt.kv),
            activation_bytes=2 * wide,
            out_bytes=wide,
            flops=4 * model.dense.heads * model.hidden * attended,
        ),
        "v": of["v"]._replace(activation_bytes=narrow + wide, out_bytes=narrow, flops=flops, extent=1),
    }
    last = [op.name for op in ops if op.name not in ("norm1", "q", "k", "v", "append", "attention")]
    order = ("norm1", "q", "k", "append", "attention", "v", *last)
    made = (changed.get(name, of[name]) for name in order)
    return tuple(op._replace(inputs=REORDERED.get(op.name, op.inputs)) for op in made)


def _choosing(
    model: Model, op: Operation, whole: Operation, use: CacheUse, iteration: Iteration, fmt: Formats
) -> Operation:
    """`op` with the choice of its tokens; `whole`: the same operation over every past token."""
    if op.name not in ("scores", "attention"):
        return op
    both = op.name == "attention"
    read = whole.kv_read // (2 if both and use.holds == "kv" else 1)
    scoring = whole.flops // (2 if both else 1)
    share = use.select * iteration.past / iteration.context
    partial = 2 * size_of(iteration.batch * model.dense.heads * iteration.past, fmt.activations)
    return op._replace(
        kv_read=op.kv_read + round(share * read),
        flops=op.flops + round(share * scoring),
        activation_bytes=op.activation_bytes + partial,
    )
