"""`op-split` as a strategy: its options, how operations are divided, and the best split for a request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from helmsman.lowering.variants import check_cache_use
from helmsman.planner.decision import Decision
from helmsman.planner.options import option
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import (
    compress_option,
    nvme_option,
    paper_option,
    reshape_option,
    table_option,
)
from helmsman.planner.strategies.op_split.split_rules import Compression, SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.op_split.variants import with_cache_use
from helmsman.planner.strategies.storage import storage_of
from helmsman.planner.strategies.streaming.division import divisible, most_parts
from helmsman.planner.strategies.streaming.framing import bounded, frame_of, with_doubts
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.tabulate import tabulate
from helmsman.schemas.cache_use import PARTIAL, CacheUse
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.operation_table import OperationTable
from helmsman.schemas.plan import Path as Pinning


@dataclass(frozen=True, slots=True)
class OpSplitOptions:
    """Options of `op-split`."""

    compress: Compression = compress_option()
    table: Path | None = table_option()
    reshape: bool = reshape_option()
    chunks: str | None = option(None, "divide operations: all that can be, or scores=8,wv=8", metavar="N|OP=N,..")
    nvme: Literal["direct", "bounce"] | None = nvme_option()
    pinning: Pinning = option(
        "pinned", "how host memory is read by copies", choices=("pinned", "pageable", "pin-on-transfer")
    )
    no_cpu_offload: bool = option(False, "the accelerator computes every operation")
    no_overlap: bool = option(False, "transfers wait for the operation before them")
    kv_keep: float | None = option(
        None, "attend to this share of the cached tokens", metavar="SHARE", parse=float, flag=False
    )
    kv_select: float | None = option(
        None, "of the head dimension, read to choose them; 0: no choice", metavar="SHARE", parse=float, flag=False
    )
    activation_cache: bool = option(False, "cache layer inputs instead of K and V", flag=False)
    fused_attention: bool = option(
        False, "attention is one operation (FlashAttention), as it always is over q8_0 caches"
    )
    write_table: Path | None = option(
        None, "write the prices of every operation, to edit", metavar="FILE", parse=Path, recorded=False
    )
    paper: bool = paper_option()


def _decide(request: PlanRequest[OpSplitOptions]) -> Decision:
    options = request.options
    split = split_of(request)

    def search() -> Decision:
        for name, part in search_parts(split).items():
            request.tell(name)
            part()
        request.tell("plan")
        return split.decide(request.recorded())

    decision = with_doubts(search, options.table, split.frame, split.options.storage)
    return replace(bounded(decision, options.table), searched=split)


def split_of(request: PlanRequest[OpSplitOptions]) -> OpSplit:
    """Return the operation splits of a request, whose options are `OpSplitOptions`. Raises UsageError."""
    options = request.options
    if options.paper and (options.no_overlap or options.pinning == "pin-on-transfer"):
        remedy = "leave `paper` out: the printed equations know lanes that overlap"
        raise UsageError("does not go with transfers that wait for operations", field="paper", remedy=remedy)
    frame = frame_of(
        request,
        options.table,
        overlap="none" if options.no_overlap else "next-layer",
        reshape=options.reshape,
        cache=_cache_use(request, options),
        fused=options.fused_attention,
    )
    frame = replace(with_cache_use(frame), formats=request.formats)
    rules = SplitRules(
        chunks=_chunks(options.chunks, frame),
        compress=options.compress,
        storage=storage_of(options.nvme, request.hardware),
        path=options.nvme or "direct",
        pinning=options.pinning,
        offload=not options.no_cpu_offload,
        printed=options.paper,
    )
    return OpSplit(frame, rules, request.prices, request.objective)


def search_parts(split: OpSplit) -> Mapping[str, Callable[[], object]]:
    """The parts of a search by name, in order (PARK-50); `split` keeps what they make, which its decision uses.

    `balancing` of storage where weights may come from there, `prices` of every operation, the closed form of every
    split (`search`), and the prediction of the best of them (`finalists`). They raise what a decision raises."""
    parts: dict[str, Callable[[], object]] = {
        "prices": lambda: split.table,
        "search": lambda: split.fitting,
        "finalists": lambda: split.finalists,
    }
    return {"balancing": lambda: split.stripes, **parts} if split.options.storage else parts


def tabulated(split: OpSplit) -> OperationTable:
    """Return the prices of a search as a table to edit and give back."""
    return tabulate(split.frame, split.costs, split.options.storage)


def _cache_use(request: PlanRequest[OpSplitOptions], options: OpSplitOptions) -> CacheUse:
    """Return what attention reads of past tokens (PARK-66)."""
    keep = 1.0 if options.kv_keep is None else options.kv_keep
    select = options.kv_select if options.kv_select is not None else PARTIAL if keep < 1 else 0.0
    if options.kv_select and keep == 1:
        remedy = "add `kv_keep` SHARE"
        raise UsageError("nothing is chosen when all tokens are read", field="kv_select", remedy=remedy)
    if not 0 < keep <= 1:
        raise UsageError("is not a share of tokens", field="kv_keep", value=keep, remedy="use 0 < SHARE <= 1")
    if not 0 <= select <= 1:
        raise UsageError("is not a share of a head", field="kv_select", value=select, remedy="use 0 <= SHARE <= 1")
    if options.activation_cache and request.workload.prefix_tokens:
        message, remedy = "a prompt pass reads keys and values of known tokens", "leave one of the two out"
        raise UsageError(message, field="activation_cache", remedy=remedy)
    use = CacheUse(keep=keep, select=select, holds="activations" if options.activation_cache else "kv")
    check_cache_use(request.model, use)
    return use


def _chunks(text: str | None, frame: Frame) -> dict[str, int]:
    """`8` (every operation that can be divided, into as many parts or as it has), or `scores=8,wv=4`."""
    if text is None:
        return {}
    names = divisible(frame.model, frame.form)
    chunks = dict[str, int]()
    for name, count in _divisions(text, frame.model, names):
        if name not in names or not count.isdecimal() or len(count) > 6:
            remedy = f"write a number, or OP=N with operations among {', '.join(names)}"
            raise UsageError("not a division of operations", field="chunks", value=text, remedy=remedy)
        if name in chunks:
            raise UsageError(f"divides {name} twice", field="chunks", value=text, remedy=f"name {name} once")
        chunks[name] = int(count)
    return chunks


def _divisions(text: str, model: Model, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """(operation, parts) as they are written."""
    if "=" in text or not text.isdecimal() or len(text) > 6:
        pairs = (item.partition("=") for item in text.split(","))
        return [(name, count) for name, _, count in pairs]
    wanted = int(text)
    return [(name, str(min(wanted, most_parts(model, name)))) for name in names]


STRATEGY = Method(
    "op-split",
    "Park & Egger: split points inside a layer",
    OpSplitOptions,
    _decide,
    fits=lambda request: split_of(request).fits(request.workload),
)
