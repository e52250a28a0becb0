"""Turn a request into the frame of strategies whose host and accelerator both work, with the user's operation table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

from helmsman.planner.decision import Decision
from helmsman.planner.machine import roles
from helmsman.planner.options import Recorded
from helmsman.planner.prediction.launches import driven
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import TableOptions
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.cache_use import PLAIN, CacheUse
from helmsman.schemas.errors import HelmError
from helmsman.schemas.formats import is_plain


def frame_of(
    request: PlanRequest[Any],
    table: Path | None = None,
    *,
    overlap: Literal["none", "next-layer"] = "next-layer",
    reshape: bool = False,
    cache: CacheUse = PLAIN,
    fused: bool = False,
) -> Frame:
    """Return model, machine, workload, formats and schedule, and what attention reads: quantised caches at once, as
    executors divide it over values alone. `table`: a file of measured operations, before those of the machine.

    Raises BadInputError for a table of another question."""
    frame = Frame(
        request.model,
        driven(roles(request.hardware), request.model, request.workload, request.weights, request.kv),
        request.workload,
        request.weights,
        request.kv,
        overlap=overlap,
        reshape=reshape,
        cache=cache,
        fused=fused or not is_plain(request.kv),
    )
    return frame if table is None else _with_table(table, frame)


def _with_table(path: Path, frame: Frame) -> Frame:
    from helmsman.planner.strategies.streaming.table_check import check_table
    from helmsman.schemas.operation_table import OperationTable
    from helmsman.schemas.read import read_document

    table = read_document(OperationTable, path)
    if frame.roles.separate:
        check_table(table, frame, str(path))
    return frame.with_tables(table)


def with_doubts(
    decide: Callable[[], Decision], table: Path | None, frame: Frame, storage: tuple[str, ...] = ()
) -> Decision:
    """Return the decision of `decide`, with which figures of the user's `table` cannot be seconds; what it raises has
    that, too."""
    from helmsman.planner.strategies.streaming.table_check import table_warnings

    if table is None or not frame.roles.separate:
        return decide()
    doubts = tuple(table_warnings(frame.roles.hardware.tables[0], frame, storage))
    try:
        return decide().doubted(doubts)
    except HelmError as error:
        error.doubts = (*error.doubts, *doubts)
        raise


class FramedStrategy(Protocol):
    """Decides on a question about a frame."""

    def decide(self, recorded: Recorded) -> Decision:
        """Return the decision, whose plan says what is `recorded`."""


def decide_framed(strategy: Callable[[Question], FramedStrategy], request: PlanRequest[TableOptions]) -> Decision:
    """Return the decision of a `strategy` that is asked nothing but the question and the user's table."""
    table = request.options.table
    frame = frame_of(request, table)
    chosen = strategy(Question(frame, request.prices, request.objective))
    return with_doubts(lambda: chosen.decide(request.recorded()), table, frame)


def bounded(decision: Decision, table: Path | None) -> Decision:
    """The decision with a warning where the user's table leaves its plan no bound."""
    decode = decision.plan.predicted.decode
    if table is None or decode.lower_bound != decode.seconds.mid:
        return decision
    remedy = "the lower bound is the plan's own time; correct the table, or the record"
    return decision.doubted((f"`table`: faster than the machine's rates allow: {remedy}",))
