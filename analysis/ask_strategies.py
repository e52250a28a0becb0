"""Several strategies asked one question, and larger and larger batches of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from helmsman.analysis.comparison import Answer, answer, misused, ranked
from helmsman.analysis.front import Found, batches, points
from helmsman.planner.checks.format_check import check_formats
from helmsman.planner.decision import Decision
from helmsman.planner.memory.names import memory_name
from helmsman.planner.mixed_formats import decide_mixed
from helmsman.planner.options import offered, read_options
from helmsman.planner.registry import method
from helmsman.planner.request import PlanRequest, say_nothing
from helmsman.planner.slo import limits_of
from helmsman.schemas.comparison import Comparison, Limit, Point
from helmsman.schemas.errors import UsageError
from helmsman.schemas.objective import Objective
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest

SHARED = ("compress", "home", "percent", "kv_rule", "same_software", "slo")
"""Options that go with several strategies at once: those that do not have one do without."""

OF_ALL_ENGINES = "same_software"
"""The option that every engine is given where several strategies are compared."""

EVERY_WAY = "every_way"
"""The option of engines that seek what is left open: they are compared by the plans that they have when asked alone."""

Given = Mapping[str, str | int | float | bool]


def compare(request: PlanRequest[Any], strategies: Sequence[str], given: Given, most: int | None = None) -> Comparison:
    """Return the answers of `strategies`, the best first, each asked with those of the options `given` that it has; one
    strategy alone is asked with those of the request.

    `most`: also plans for as many sequences as the request has, twice as many and so on, up to this number. Raises what
    the only strategy raises, and UsageError for an option that all that have it refuse."""
    request.check_undrafted("a comparison")
    check_formats(request)
    questions = _Questions(request, tuple(strategies), given)
    answers = [questions.answer(name) for name in strategies]
    refused = answers[0].given if len(answers) == 1 else misused(answers, given)
    if isinstance(refused, Exception):
        raise refused
    limits = _limits(given)
    return Comparison(
        model=request.model.name,
        model_sha256=digest(request.model),
        hardware=request.hardware.name,
        hardware_sha256=digest(request.hardware),
        memory_names={memory.name: memory_name(request.hardware, memory.name) for memory in request.hardware.memories},
        workload=request.workload,
        weights=request.weights,
        kv=request.kv,
        objective=request.objective,
        options=dict(given),
        same_software=len(answers) > 1 or getattr(request.options, OF_ALL_ENGINES, False),
        rows=ranked(answers, request.objective, limits),
        points=_points(questions, answers, most, limits) if most is not None else (),
    )


class _Questions:
    """Asks strategies one question, each with the options that it has."""

    def __init__(self, request: PlanRequest[Any], strategies: tuple[str, ...], given: Given) -> None:
        self.request, self.strategies, self.given = request, strategies, given

    def answer(self, name: str) -> Answer:
        """Return the answer of a strategy."""
        self.request.tell(name)
        own = (*offered(method(name).options), "slo")
        ignored = tuple(option for option in self.given if option not in own)
        return answer(name, lambda: self.decision(name), ignored)

    def decision(self, name: str, batch: int | None = None, objective: Objective | None = None) -> Decision:
        """Return the decision of a strategy, for another `batch` and `objective` where they are given."""
        request = self._of(name)
        if batch is not None:
            request = request.sized(batch=batch)
        request = replace(request, objective=objective or request.objective, tell=say_nothing)
        return decide_mixed(request, method(name).decide, method(name).propose)

    def _of(self, name: str) -> PlanRequest[Any]:
        if len(self.strategies) == 1:
            return self.request
        kind = method(name).options
        own = offered(kind)
        values: dict[str, object] = {option: value for option, value in self.given.items() if option in own}
        if OF_ALL_ENGINES in own:
            values[OF_ALL_ENGINES] = True
        options = read_options(kind, values, name)
        if hasattr(options, EVERY_WAY):
            options = replace(options, **{EVERY_WAY: True})
        return self.request.of(name, options)


def _limits(given: Given) -> dict[Limit, float]:
    """Return seconds by what is limited."""
    text = given.get("slo")
    named: dict[str, Limit] = {"prefill": "ttft", "decode": "tpot"}
    return {named[phase]: seconds for phase, seconds in limits_of(None if text is None else str(text)).items()}


def _points(
    questions: _Questions, answers: Sequence[Answer], most: int, limits: Mapping[Limit, float]
) -> tuple[Point, ...]:
    """Larger batches of the strategies that have a plan, asked for the shortest request: that is what is drawn."""
    request = questions.request
    first, same = request.workload.batch, request.objective in ("request", "throughput")
    plans = {answer.strategy: answer.given for answer in answers if isinstance(answer.given, Plan)}

    def plans_of(name: str) -> Callable[[int], Plan]:
        def ask(batch: int) -> Plan:
            return plans[name] if same and batch == first else questions.decision(name, batch, "request").plan

        return ask

    def larger(name: str) -> Iterator[Found]:
        request.tell(name)
        return batches(name, plans_of(name), first, most)

    return points(chain.from_iterable(map(larger, plans)), limits)


def check_several(given: Given, several: bool) -> None:
    """Raise UsageError for options that do not go with several plans: of `several` strategies, or of one for several
    batches."""
    of_one_batch = ("block", "table", "write_table", "explain")
    for name in given:
        if name not in SHARED if several else name in of_one_batch:
            remedy = "leave it out, or ask one strategy about one batch"
            raise UsageError("does not go with several plans", field=name, remedy=remedy)
