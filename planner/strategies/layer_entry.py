"""`layer-split` as a strategy: its options, and the best layer split for a request."""

from dataclasses import dataclass, replace

from helmsman.planner.cost.model import shared_costs
from helmsman.planner.decision import Decision
from helmsman.planner.machine import roles
from helmsman.planner.options import option
from helmsman.planner.prediction.launches import driven
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import paper_option
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_search import decide
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.planner.strategies.layer_windows import Window, suits_windows
from helmsman.planner.strategies.paper import PrintedLayerSplit
from helmsman.schemas.errors import UsageError
from helmsman.schemas.page_cache import PAGE_STEP
from helmsman.schemas.same import Same

AUTO = "auto"
"""The value of `kv_window` for all that fit."""

_PAGE = 512
_WATERMARK = 0.8


@dataclass(frozen=True, slots=True)
class LayerSplitOptions:
    """Options of `layer-split`; `undivided`: plans of one device alone."""

    kv_offload: bool = option(False, "keep the accelerator's KV in host memory")
    kv_window: str | None = option(
        None,
        "tokens of its KV that the accelerator keeps, the rest pages from host memory; auto: all that fit",
        metavar="TOKENS|auto",
    )
    page_tokens: int | None = option(None, f"tokens of a page (default {_PAGE})", metavar="N", parse=int)
    watermark: float | None = option(
        None, f"of the window, above which pages leave (default {_WATERMARK})", metavar="SHARE", parse=float
    )
    paper: bool = paper_option()
    undivided: bool = option(False, "plans of one device alone", recorded=False, offered=False)


def split_of(request: PlanRequest[LayerSplitOptions]) -> LayerSplit:
    """Return the layer splits of a request, whose options are `LayerSplitOptions`. Raises UsageError."""
    options = request.options
    if options.paper and request.formats:
        remedy = "leave it out, or name one `format`"
        raise UsageError("the printed model is of weights in one format", field="paper", remedy=remedy)
    window = _window(request, options)
    question = SplitQuestion(
        request.weights, request.kv, options.kv_offload, request.objective, window, options.undivided, request.formats
    )
    machine = driven(roles(request.hardware), request.model, request.workload, request.weights, request.kv)
    strategy = PrintedLayerSplit if options.paper else LayerSplit
    costs = shared_costs(Same(machine.hardware), request.prices)
    return strategy(request.model, machine, request.workload, question, costs)


def _window(request: PlanRequest[LayerSplitOptions], options: LayerSplitOptions) -> Window | None:
    """The window that is asked for. Raises UsageError for one that cannot be, or beside what it excludes."""
    if options.kv_window is None:
        for name in ("page_tokens", "watermark"):
            if getattr(options, name) is not None:
                raise UsageError("is of a window", field=name, remedy="add `kv_window` auto, or leave it out")
        return None
    _check_beside(request, options)
    page = _PAGE if options.page_tokens is None else options.page_tokens
    if page < PAGE_STEP or page % PAGE_STEP or page > 1 << 20:
        raise UsageError("not a page", field="page_tokens", value=page, remedy=f"use a multiple of {PAGE_STEP}")
    mark = _WATERMARK if options.watermark is None else options.watermark
    if not 0.01 <= mark < 1.0:
        raise UsageError("not a share of a window", field="watermark", value=mark, remedy="use 0.01 to 0.99")
    window = Window(None, page, mark)
    return window if options.kv_window == AUTO else replace(window, tokens=_tokens(options.kv_window, window))


def _check_beside(request: PlanRequest[LayerSplitOptions], options: LayerSplitOptions) -> None:
    excluded = {
        "kv_offload": options.kv_offload,
        "paper": options.paper,
        "batches": request.workload.batches > 1,
        "prefix_tokens": request.workload.prefix_tokens > 0,
    }
    for name, given in excluded.items():
        if given:
            raise UsageError("does not go with `kv_window`", field=name, remedy="leave one of them out")
    if not suits_windows(request.model):
        message = f"layers of {request.model.name} do not all attend to every token through caches that are alike"
        raise UsageError(
            message, field="kv_window", value=options.kv_window, remedy="leave it out, or use `kv_offload`"
        )
    if not roles(request.hardware).separate:
        message, remedy = f"{request.hardware.name} has no accelerator with a memory of its own", "leave it out"
        raise UsageError(message, field="kv_window", value=options.kv_window, remedy=remedy)


def _tokens(text: str, window: Window) -> int:
    tokens = int(text) if text.isdecimal() and len(text) < 10 else 0
    if tokens < window.least or tokens % window.page_tokens:
        remedy = f"use {AUTO}, or a multiple of {window.page_tokens}, at least {window.least}"
        raise UsageError("not a window", field="kv_window", value=text, remedy=remedy)
    return tokens


def _fits(request: PlanRequest[LayerSplitOptions]) -> bool:
    split = split_of(request)
    return any(not split.shortage(k) for k in split.candidates())


def _decide(request: PlanRequest[LayerSplitOptions]) -> Decision:
    return decide(split_of(request), request.recorded())


def _propose(request: PlanRequest[LayerSplitOptions]) -> Decision:
    return decide(split_of(request), request.recorded(), priced=not request.options.paper)


STRATEGY = Method(
    "layer-split",
    "HELM: the first layers on the CPU, the others on the accelerator",
    LayerSplitOptions,
    _decide,
    fits=_fits,
    quick=True,
    propose=_propose,
    own_formats=True,
)
