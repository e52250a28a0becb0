"""Strategies asked one question: each one's plan and its speed, or why there is none, the best first."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from helmsman.planner.decide import unsuited
from helmsman.planner.decision import Decision
from helmsman.planner.machine import why_unused
from helmsman.planner.prediction.speed import planned, seconds
from helmsman.schemas.comparison import Limit, Planned, Row
from helmsman.schemas.errors import InfeasibleError, UnequalBlocksError, UsageError
from helmsman.schemas.objective import Objective
from helmsman.schemas.plan import Plan

_ORDER = ("fits", "does-not-fit", "does-not-apply")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a strategy: its plan, or the error that says why it has none; `unused`: devices of the machine that
    it cannot use, and why."""

    strategy: str
    given: Plan | InfeasibleError | UsageError
    ignored: tuple[str, ...] = ()
    unused: Mapping[str, str] = field(default_factory=dict)


def answer(strategy: str, ask: Callable[[], Decision], ignored: tuple[str, ...] = ()) -> Answer:
    """Return the answer of one strategy. What is neither InfeasibleError nor UsageError is raised, but for a model that
    the strategy does not suit."""
    try:
        decision = ask()
    except UnequalBlocksError as error:
        return Answer(strategy, unsuited(strategy, error), ignored)
    except (InfeasibleError, UsageError) as error:
        return Answer(strategy, error, ignored)
    unused = {name: why_unused(decision.plan.hardware, name) for name in decision.unused}
    return Answer(strategy, decision.plan, ignored, unused)


def ranked(
    answers: Iterable[Answer], objective: Objective, limits: Mapping[Limit, float] | None = None
) -> tuple[Row, ...]:
    """Return rows of the answers: plans that keep the `limits` (seconds) by `objective`, then others by it, then what
    does not fit, nearest first, then what does not apply."""
    rows = [_limited(_row(answer), limits or {}) for answer in answers]
    times = [(bool(row.misses), seconds(row.planned, objective)) for row in rows if row.planned is not None]
    _, best = min(times, default=(False, 0.0))
    rows = [_against(row, best, objective) for row in rows]
    return tuple(sorted(rows, key=_place))


def _place(row: Row) -> tuple[int, bool, float, int]:
    return _ORDER.index(row.verdict), bool(row.misses), row.relative or 0.0, sum(row.lacks.values())


def _limited(row: Row, limits: Mapping[Limit, float]) -> Row:
    """With the limits that its plan misses: for all sequences, as its speed is."""
    return row if row.planned is None else row.model_copy(update={"misses": missed(row.planned, limits)})


def missed(planned: Planned, limits: Mapping[Limit, float]) -> tuple[Limit, ...]:
    """Return the `limits` (seconds) over which a plan is."""
    took: dict[Limit, float] = {"ttft": planned.speed.ttft.mid, "tpot": planned.speed.step.mid}
    return tuple(name for name, limit in limits.items() if took[name] > limit)


def nearest(rows: Iterable[Row]) -> Row | None:
    """Return the one of the strategies that do not fit that lacks least."""
    lacking = [row for row in rows if row.verdict == "does-not-fit"]
    return min(lacking, key=lambda row: sum(row.lacks.values()), default=None)


def misused(answers: Iterable[Answer], options: Iterable[str]) -> UsageError | None:
    """Return what the last of the strategies that have one of the `options` says against it, if all of them do."""
    every = tuple(answers)
    for option in options:
        refusals = list(_refusals(every, option))
        if refusals and None not in refusals:
            return refusals[-1]
    return None


def _refusals(answers: tuple[Answer, ...], option: str) -> Iterator[UsageError | None]:
    """By strategy that has the option and works on this machine: the error that names it, or None."""
    for answer in answers:
        refused = answer.given if isinstance(answer.given, UsageError) else None
        if option not in answer.ignored and (refused is None or refused.field != "strategy"):
            yield refused if refused is not None and refused.field == option else None


def _row(answer: Answer) -> Row:
    if isinstance(answer.given, Plan):
        done, unused = planned(answer.given), dict(answer.unused)
        return Row(strategy=answer.strategy, verdict="fits", planned=done, ignored=answer.ignored, unused=unused)
    lacks = answer.given.lacks if isinstance(answer.given, InfeasibleError) else None
    return Row(
        strategy=answer.strategy,
        verdict="does-not-apply" if lacks is None else "does-not-fit",
        reason=_reason(answer.given),
        remedy=answer.given.remedy,
        lacks=lacks or {},
        ignored=answer.ignored,
    )


def _reason(error: InfeasibleError | UsageError) -> str:
    """Return the message, with the option that it is about."""
    named = error.field is not None and error.field != "strategy"
    return f"`{error.field}`: {error.message}" if named else error.message


def _against(row: Row, best: float, objective: Objective) -> Row:
    if row.planned is None:
        return row
    return row.model_copy(update={"relative": seconds(row.planned, objective) / best})
